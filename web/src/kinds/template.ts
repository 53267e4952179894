// Templates of machines, and their versions: a version never changes, a template says which one is meant.

import { type Condition, conditionOf, type Thing } from "@/api/objects";

import { CLAIMS, type MachineSpec } from "./virtual-machine";

export type Template = Thing<{ description?: string; defaultVersionId?: string }, { defaultVersion?: number; latestVersion?: number }>;

export interface MachineSource {
  metadata?: { labels?: Record<string, string>; annotations?: Record<string, string> };
  spec: MachineSpec;
}

export interface VersionSpec {
  templateId: string;
  description?: string;
  imageId?: string;
  keyPairIds?: string[];
  vm: MachineSource;
}

export type Version = Thing<VersionSpec, { version?: number; conditions?: Condition[] }>;

export const numberOf = (version: Version) => version.status?.version ?? 0;

/** The newest first. */
export function versionsOf(template: Template, versions: readonly Version[]): Version[] {
  return versions.filter((one) => one.spec.templateId === template.id).sort((one, other) => numberOf(other) - numberOf(one));
}

export const isDefault = (template: Template, version: Version) => template.spec.defaultVersionId === version.id;

/** Whether a machine can be made of it now; `undefined` where it does not say. */
export function readyOf(version: Version): boolean | undefined {
  const ready = conditionOf(version, "ready");
  return ready === undefined ? undefined : ready.status === "True";
}

/** The images that its disks are of, by id. */
export function imagesOf(version: Version): string[] {
  try {
    const claims = JSON.parse(version.spec.vm.metadata?.annotations?.[CLAIMS] ?? "[]") as { metadata?: { annotations?: Record<string, string> } }[];
    const named = claims.map((one) => one.metadata?.annotations?.["harvesterhci.io/imageId"] ?? "");
    return [...new Set([version.spec.imageId ?? "", ...named])].filter((one) => one !== "");
  } catch {
    return [];
  }
}
