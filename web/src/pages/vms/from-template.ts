// A draft of a machine from a version of a template, and the other way round.

import { idOf } from "@/api/objects";
import type { VersionSpec } from "@/kinds/template";
import { CLAIMS, devicesOf } from "@/kinds/virtual-machine";

import { claimName, claimsIn, type Draft, keysOf, putClaims } from "./draft";

/** What is one machine's own, and nobody else's. */
const own = ["harvesterhci.io/mac-address", "harvesterhci.io/vmRunStrategy"];
const IMAGE = "harvesterhci.io/imageId";

/** Its name is empty: its disks are called after it as soon as it has one, so that two machines of a template have two sets. */
export function fromVersion({ vm }: VersionSpec, namespace: string): Draft {
  const { metadata = {}, spec } = structuredClone(vm);
  const annotations = Object.fromEntries(Object.entries(metadata.annotations ?? {}).filter(([key]) => !own.includes(key)));
  const draft: Draft = { apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name: "", namespace, annotations }, spec };
  if (Object.keys(metadata.labels ?? {}).length > 0) draft.metadata.labels = metadata.labels ?? {};
  const inside = spec.template.spec;
  delete inside.hostname;
  // Every draft has devices, which the form adds to.
  inside.domain.devices = devicesOf({ spec });
  for (const one of inside.domain.devices.interfaces ?? []) delete one.macAddress;
  const claims = claimsIn(draft);
  for (const volume of inside.volumes ?? []) {
    const used = volume.persistentVolumeClaim;
    const claim = claims.find((one) => one.metadata.name === used?.claimName);
    if (used && claim) used.claimName = claim.metadata.name = claimName("", volume.name);
  }
  if (annotations[CLAIMS] !== undefined) putClaims(draft, claims);
  return draft;
}

/** Whether the template leaves it to whoever makes a machine what is on its first disk. */
export const asksForImage = (draft: Draft) => claimsIn(draft)[0]?.metadata.annotations?.[IMAGE] === "";

/** And whether that is a disc that it is installed from. */
export function asksForDisc(draft: Draft): boolean {
  const { volumes = [], domain } = draft.spec.template.spec;
  const first = volumes.find((one) => one.persistentVolumeClaim?.claimName === claimsIn(draft)[0]?.metadata.name);
  return asksForImage(draft) && domain.devices.disks?.find((one) => one.name === first?.name)?.cdrom !== undefined;
}

export function newTemplate(name: string, namespace: string, description: string) {
  return { apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineTemplate", metadata: { name, namespace }, spec: { description } };
}

/** The next version of a template. It says nothing of the name that the machine would have had. */
export function newVersion(template: string, draft: Draft, description: string) {
  const { metadata, spec } = structuredClone(draft);
  const { namespace, labels, annotations = {} } = metadata;
  delete spec.template.spec.hostname;
  return {
    apiVersion: "harvesterhci.io/v1beta1",
    kind: "VirtualMachineTemplateVersion",
    metadata: { generateName: `${template}-`, namespace },
    spec: { templateId: idOf(namespace, template), description, keyPairIds: keysOf(draft), vm: { metadata: { annotations, ...(labels ? { labels } : {}) }, spec } },
  };
}
