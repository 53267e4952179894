// The pages that the side leads to. What is not here has no page.

import { computed } from "vue";

import { mayReadAudit } from "@/api/rights";
import { words } from "@/words";

export interface Page {
  name: string;
  path: string;
  title: string;
  /** A line before it. */
  gap?: boolean;
  /** Whether it leads anywhere for whoever is signed in; always if not said. */
  isOffered?: () => boolean;
}

const every: Page[] = [
  { name: "overview", path: "/", title: words.nav.overview },
  { name: "hosts", path: "/hosts", title: words.nav.hosts },
  { name: "vms", path: "/vms", title: words.nav.virtualMachines },
  { name: "volumes", path: "/volumes", title: words.nav.volumes },
  { name: "images", path: "/images", title: words.nav.images },
  { name: "snapshots", path: "/snapshots", title: words.nav.snapshots },
  { name: "networks", path: "/networks", title: words.nav.networks },
  { name: "keys", path: "/keys", title: words.nav.keys },
  { name: "templates", path: "/templates", title: words.nav.templates },
  { name: "cloud-configs", path: "/cloud-configs", title: words.nav.cloudConfigs },
  { name: "settings", path: "/settings", title: words.nav.settings, gap: true },
  { name: "users", path: "/users", title: words.nav.users },
  { name: "access", path: "/access", title: words.nav.access },
  { name: "events", path: "/events", title: words.nav.events, gap: true },
  { name: "audit", path: "/audit", title: words.nav.audit, isOffered: () => mayReadAudit.value },
  { name: "support", path: "/support", title: words.nav.support },
];

export const pages = computed(() => every.filter((page) => page.isOffered?.() ?? true));
