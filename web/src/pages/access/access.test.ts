import { expect, it } from "vitest";

import { words } from "@/words";

import { fingerprint } from "./authority";
import { endOf, kindOf, ordered, type Token } from "./tokens";

const token = (more: Partial<Token>): Token => ({ id: "t", name: "t", created: "2026-01-01T00:00:00Z", expired: false, isDerived: false, current: false, links: {}, ...more });

it("tells sessions from tokens", () => {
  expect(kindOf(token({ current: true }))).toBe("current");
  expect(kindOf(token({}))).toBe("session");
  expect(kindOf(token({ isDerived: true }))).toBe("program");
  expect(kindOf(token({ isDerived: true, labels: { "authn.management.cattle.io/kind": "kubeconfig" } }))).toBe("kubeconfig");
  expect(kindOf(token({ isDerived: true, description: "Kubeconfig token", labels: { a: "b" } })), "a description is anybody's").toBe("program");
});

it("says when a token ends", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");
  expect(endOf(token({ expiresAt: "2026-01-04T00:00:00Z" }), now)).toBe(words.access.inTime("3d"));
  expect(endOf(token({ expiresAt: "" }), now)).toBe(words.access.never);
  expect(endOf(token({ expiresAt: null }), now)).toBe(words.access.never);
  expect(endOf(token({ expired: true, expiresAt: "2025-01-04T00:00:00Z" }), now)).toBe(words.access.expired);
});

it("puts tokens before sessions, and the newest first", () => {
  const all = [token({ id: "a" }), token({ id: "b", created: "2026-01-02T00:00:00Z" }), token({ id: "c", isDerived: true })];
  expect(ordered(all).map((one) => one.id)).toEqual(["c", "b", "a"]);
});

it("counts a fingerprint over the certificate and not over its file", async () => {
  const pem = `-----BEGIN CERTIFICATE-----\n${btoa("abc")}\n-----END CERTIFICATE-----\n`;
  const expected = "BA:78:16:BF:8F:01:CF:EA:41:41:40:DE:5D:AE:22:23:B0:03:61:A3:96:17:7A:9C:B4:10:FF:61:F2:00:15:AD";
  expect(await fingerprint(pem)).toBe(expected);
  expect(await fingerprint(`\r\n${pem.replace(/\n/g, "\r\n")}`)).toBe(expected);
  expect(await fingerprint("nothing")).toBe("");
});
