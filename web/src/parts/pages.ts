// The pages that the side leads to. What is not here has no page.

import { words } from "@/words";

export interface Page {
  name: string;
  path: string;
  title: string;
  /** A line before it. */
  gap?: boolean;
}

export const pages: Page[] = [
  { name: "overview", path: "/", title: words.nav.overview },
  { name: "vms", path: "/vms", title: words.nav.virtualMachines },
  { name: "images", path: "/images", title: words.nav.images },
];
