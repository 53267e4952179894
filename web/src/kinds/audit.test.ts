import { expect, it } from "vitest";

import { type AuditLine, fromOf, microsOf, toneOfAnswer, whatOf, whoOf } from "./audit";

const line = (more: Partial<AuditLine>): AuditLine => ({ auditID: "a", stage: "ResponseComplete", verb: "get", user: {}, stageTimestamp: "2030-01-01T00:00:00.000001Z", ...more });

it("says what was done to what", () => {
  expect(whatOf(line({ objectRef: { resource: "virtualmachines", subresource: "start" } }))).toBe("virtualmachines/start");
  expect(whatOf(line({ requestURI: "/v3/tokens?action=logout" }))).toBe("/v3/tokens");
  expect(whatOf(line({}))).toBe("");
});

it("knows who signed in although nobody was known before", () => {
  expect(whoOf(line({ annotations: { "sheaf.io/signed-in-user": "jo" } }))).toBe("jo");
  expect(whoOf(line({ user: { username: "ann" } }))).toBe("ann");
});

it("trusts the last address alone", () => {
  expect(fromOf(line({ sourceIPs: ["10.0.0.1", "192.0.2.1"] }))).toBe("192.0.2.1");
});

it("keeps lines of one millisecond in their order", () => {
  const [one, other] = [line({}), line({ stageTimestamp: "2030-01-01T00:00:00.000002Z" })];
  expect(microsOf(other) - microsOf(one)).toBe(1);
});

it("marks what was refused and what failed", () => {
  expect([200, 403, 500].map((code) => toneOfAnswer(line({ responseStatus: { code } })))).toEqual(["quiet", "warn", "bad"]);
  expect(toneOfAnswer(line({}))).toBe("quiet");
});
