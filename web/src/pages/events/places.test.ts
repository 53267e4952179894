import { expect, it } from "vitest";

import type { Happening } from "@/kinds/event";

import { placeOf } from "./places";

const about = (kind: string) => ({ involvedObject: { kind, name: "a", namespace: "web" } }) as Happening;

it("leads to the page of an object where there is one", () => {
  expect(placeOf(about("VirtualMachineInstance"), () => true)).toEqual({ name: "vm", params: { namespace: "web", name: "a" } });
  expect(placeOf(about("Node"), () => true)).toEqual({ name: "host", params: { name: "a" } });
  expect(placeOf(about("PersistentVolumeClaim"), () => true)).toEqual({ name: "volumes", query: { q: "a" } });
  expect(placeOf(about("PersistentVolumeClaim"), () => false)).toBeUndefined();
  expect(placeOf(about("Pod"), () => true)).toBeUndefined();
  expect(placeOf({} as Happening, () => true)).toBeUndefined();
});
