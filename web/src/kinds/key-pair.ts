// Public SSH keys.

import type { Thing } from "@/api/objects";

export type KeyPair = Thing<{ publicKey: string }, { fingerPrint?: string }>;

const types = /^(ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-nistp\d+|sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)$/;

/** The words of the key itself: options may stand before, a comment behind. */
function partsOf(line: string): { type: string; comment: string } | undefined {
  const words = line.trim().split(/\s+/);
  const at = words.findIndex((word) => types.test(word));
  return at < 0 || words[at + 1] === undefined ? undefined : { type: words[at] ?? "", comment: words.slice(at + 2).join(" ") };
}

/** As people call it: `ed25519`, `rsa`, `ecdsa-p256`. */
export function typeOfKey(line: string): string {
  const type = partsOf(line)?.type ?? "";
  return type.replace(/^sk-/, "").replace(/@openssh\.com$/, "").replace(/^ssh-/, "").replace(/^ecdsa-sha2-nistp/, "ecdsa-p");
}

/** What the key calls itself, as a name of an object; empty when it says nothing. */
export function nameFrom(line: string): string {
  return (partsOf(line)?.comment ?? "").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 63);
}

export type Trouble = "private" | "several" | "none";

/** What is easily seen to be no public key, before the server looks at it. */
export function troubleOfKey(text: string): Trouble | undefined {
  if (text.includes("PRIVATE KEY-----")) return "private";
  const lines = text.trim().split(/\r?\n/).filter((line) => line.trim() !== "");
  if (lines.length > 1) return "several";
  return partsOf(lines[0] ?? "") ? undefined : "none";
}
