// Where the page of an object is that an event is about, if there is one.

import type { RouteLocationRaw } from "vue-router";

import type { Happening } from "@/kinds/event";

/** Pages of one object, then lists that are filtered by its name. */
const ofOne: Record<string, string> = { VirtualMachine: "vm", VirtualMachineInstance: "vm", Node: "host", User: "user" };
const ofMany: Record<string, string> = {
  VirtualMachineImage: "images",
  PersistentVolumeClaim: "volumes",
  VirtualMachineBackup: "snapshots",
  VirtualMachineRestore: "snapshots",
  VolumeSnapshot: "snapshots",
  NetworkAttachmentDefinition: "networks",
  KeyPair: "keys",
  VirtualMachineTemplate: "templates",
  Setting: "settings",
  SupportBundle: "support",
};

export function placeOf(event: Happening, isThere: (route: string) => boolean): RouteLocationRaw | undefined {
  const { kind = "", name, namespace } = event.involvedObject ?? {};
  if (!name) return undefined;
  const one = ofOne[kind];
  if (one && isThere(one)) return { name: one, params: one === "vm" ? { namespace, name } : { name } };
  const many = ofMany[kind];
  return many && isThere(many) ? { name: many, query: { q: name } } : undefined;
}
