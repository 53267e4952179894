// Settings of the cluster: Harvester's, each with what it is worth here.

import type { Condition, Thing } from "@/api/objects";
import { conditionOf } from "@/api/objects";
import type { Tone } from "@/parts/tone";
import { words } from "@/words";

export interface Setting extends Thing<undefined, { conditions?: Condition[] }> {
  value?: string;
  default?: string;
}

export type Form = "boolean" | "choice" | "number" | "json" | "text" | "lines";

const choices: Record<string, string[]> = {
  "log-level": ["panic", "fatal", "error", "warn", "info", "debug", "trace"],
  "ui-source": ["auto", "external", "bundled"],
};
/** JSON, also where the default is empty and does not show it. */
const written = ["backup-target", "containerd-registry", "ntp-servers", "storage-network", "vip-pools", "vm-migration-network", "rwx-network"];
/** What is secret in these is all of them. */
const secrets = ["backup-target", "containerd-registry", "ssl-certificates", "cluster-registration-url"];
const lines = ["additional-ca"];

export const isSet = (setting: Setting) => (setting.value ?? "") !== "" && setting.value !== setting.default;
export const holds = (setting: Setting) => setting.value || setting.default || "";

export function formOf(setting: Setting): Form {
  const name = setting.metadata.name;
  const standard = setting.default ?? "";
  if (choices[name]) return "choice";
  if (lines.includes(name)) return "lines";
  if (standard === "true" || standard === "false") return "boolean";
  if (written.includes(name) || /^[{[]/.test(standard)) return "json";
  return /^[0-9]+(\.[0-9]+)?$/.test(standard) ? "number" : "text";
}

export const choicesOf = (setting: Setting) => choices[setting.metadata.name] ?? [];

/** What may be shown of a value: no passwords in addresses, nothing that is called a secret, and nothing of what is one as a whole. */
export function shownOf(setting: Setting, text = holds(setting)): { text: string; isWhole: boolean } {
  if (text === "") return { text, isWhole: true };
  if (secrets.includes(setting.metadata.name) && text !== setting.default) return { text: words.settings.hidden, isWhole: false };
  const said = text
    .replace(/(\w+:\/\/[^\s:/@"]*:)[^\s/@"]+@/g, "$1•••@")
    .replace(/("[^"]*(?:password|secret|token|private_?key)[^"]*"\s*:\s*)"(?:[^"\\]|\\.)+"/gi, '$1"•••"');
  return { text: said, isWhole: said === text };
}

/** Why it is no JSON; empty if it is, or if nothing is said. */
export function wrongJson(text: string): string {
  if (text.trim() === "") return "";
  try {
    JSON.parse(text);
    return "";
  } catch (why) {
    return why instanceof Error ? why.message : String(why);
  }
}

export function laidOut(text: string): string {
  return wrongJson(text) === "" && text.trim() !== "" ? JSON.stringify(JSON.parse(text), null, 2) : text;
}

/** JSON with spaces in it, so that lines break there and not inside of words. */
export function spaced(text: string): string {
  return /^\s*[{[]/.test(text) && wrongJson(text) === "" ? JSON.stringify(JSON.parse(text), null, 1).replace(/\n\s*/g, " ") : text;
}

/** Whether what is set is in force, in a word, with the server's reason. */
export function effectOf(setting: Setting): { text: string; tone: Tone; why: string } {
  const condition = conditionOf(setting, "configured");
  const why = condition?.message ?? "";
  if (condition?.reason === "NoEffectYet") return { text: words.settings.idle, tone: isSet(setting) ? "warn" : "quiet", why };
  if (condition?.status === "False") return { text: words.settings.failed, tone: "bad", why };
  if (condition?.reason === "InPart") return { text: words.settings.inPart, tone: "good", why };
  return condition?.status === "True" ? { text: words.settings.acts, tone: "good", why } : { text: words.common.unknown, tone: "quiet", why };
}

export const groups = ["machines", "storage", "network", "access", "support", "console", "upgrades", "others"] as const;
export type Group = (typeof groups)[number];

/** By how the name begins; the first that fits. */
const groupOf_: [RegExp, Group][] = [
  [/^support-bundle/, "support"],
  [/^log-level|^server-version|^additional-ca|^ntp-servers/, "others"],
  [/^(upgrad|release-|auto-rotate)/, "upgrades"],
  [/^(ui-|api-ui)/, "console"],
  [/^(kubeconfig|ssl-|cluster-|rancher-|harvester-csi-ccm)/, "access"],
  [/(network|proxy|vip-pools|containerd-registry)/, "network"],
  [/^(backup|csi-|default-storage|auto-disk|longhorn|volume-|instance-manager)/, "storage"],
  [/(vm-|hotplug|overcommit|guest|kubevirt)/, "machines"],
];

export const groupOf = (name: string): Group => groupOf_.find(([begins]) => begins.test(name))?.[1] ?? "others";
