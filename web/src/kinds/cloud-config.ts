// Texts for cloud-init that machines are made with: ConfigMaps with a label that says what they are for.

import { parse } from "yaml";

import type { Thing } from "@/api/objects";

export interface CloudConfig extends Thing {
  data?: Record<string, string>;
}

export const LABEL = "harvesterhci.io/cloud-init-template";
const KEY = "cloudInit";

export type Purpose = "user" | "network";

export const purposeOf = (config: CloudConfig): Purpose => (config.metadata.labels?.[LABEL] === "network" ? "network" : "user");
export const textOf = (config: CloudConfig) => config.data?.[KEY] ?? "";

export type Trouble = { kind: "empty" | "mapping" | "version" } | { kind: "yaml"; why: string };

/** How user data begins that is not YAML: cloud-init goes by its first line. */
const otherFormats = ["#!", "#include", "#cloud-boothook", "#cloud-config-archive", "#cloud-config-jsonp", "#part-handler", "#upstart-job", "## template:", "Content-Type:"];

/** What a guest could not read. */
export function troubleOf(purpose: Purpose, text: string): Trouble | undefined {
  if (text.trim() === "") return { kind: "empty" };
  if (purpose === "user" && otherFormats.some((beginning) => text.startsWith(beginning))) return undefined;
  let read: unknown;
  try {
    read = parse(text);
  } catch (why) {
    return { kind: "yaml", why: (why instanceof Error ? why.message : String(why)).split("\n")[0]?.replace(/:$/, "") ?? "" };
  }
  if (typeof read !== "object" || read === null || Array.isArray(read)) return { kind: "mapping" };
  if (purpose === "user") return undefined;
  const whole = read as { network?: { version?: unknown }; version?: unknown };
  const { version } = typeof whole.network === "object" && whole.network !== null ? whole.network : whole;
  return version === 1 || version === 2 ? undefined : { kind: "version" };
}

export function newConfig(name: string, namespace: string, purpose: Purpose, text: string) {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name, namespace, labels: { [LABEL]: purpose } }, data: { [KEY]: text } };
}

/** With another text, and of the version that was read: what somebody else wrote meanwhile is not lost. */
export function changed(config: CloudConfig, text: string) {
  const { id: _id, links: _links, actions: _actions, ...object } = config;
  return { ...object, data: { ...config.data, [KEY]: text } };
}
