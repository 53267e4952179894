// Lines of the audit log, as the server writes them.

import type { Tone } from "@/parts/tone";

export interface AuditUser {
  username?: string;
  groups?: string[];
}

export interface AuditLine {
  auditID: string;
  stage: string;
  requestURI?: string;
  verb: string;
  user: AuditUser;
  impersonatedUser?: AuditUser;
  sourceIPs?: string[];
  userAgent?: string;
  objectRef?: { resource?: string; subresource?: string; namespace?: string; name?: string; apiGroup?: string };
  responseStatus?: { code?: number; message?: string; reason?: string };
  stageTimestamp: string;
  annotations?: Record<string, string>;
}

/** What changes something; the rest only looks. */
export const CHANGES = ["create", "update", "patch", "delete", "deletecollection", "post", "put"];

/** Who acts when nobody does. */
export const CLUSTER = "system:sheaf:controllers";

/** What has the verb of a change and only asks: a console asks it every time it is opened. */
export const QUESTIONS = ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews", "subjectaccessreviews", "tokenreviews"].map((one) => `!${one}`);

/** A request that goes on for long has two lines. */
export const keyOf = (line: AuditLine) => `${line.auditID} ${line.stage} ${line.stageTimestamp}`;

/** Microseconds, by which lines are in order. */
export function microsOf(line: AuditLine): number {
  const parts = /^(.*)\.(\d{6})Z$/.exec(line.stageTimestamp);
  return parts ? Date.parse(`${parts[1]}Z`) * 1000 + Number(parts[2]) : Date.parse(line.stageTimestamp) * 1000;
}

export const missingOf = (line: AuditLine) => line.annotations?.["sheaf.io/missing-events"];

/** Who asked, or who came to be known by it. */
export const whoOf = (line: AuditLine) => line.user.username ?? line.annotations?.["sheaf.io/signed-in-user"] ?? "";

/** `virtualmachines/start`, or the path of what is no object. */
export function whatOf(line: AuditLine): string {
  const { resource, subresource } = line.objectRef ?? {};
  if (!resource) return (line.requestURI ?? "").split("?")[0] ?? "";
  return subresource ? `${resource}/${subresource}` : resource;
}

export const nameOf = (line: AuditLine) => line.objectRef?.name ?? "";
export const isGoingOn = (line: AuditLine) => line.stage === "ResponseStarted";
/** The last of the addresses is who was at the other end; those before it are what proxies say. */
export const fromOf = (line: AuditLine) => line.sourceIPs?.at(-1) ?? "";

export function toneOfAnswer(line: AuditLine): Tone {
  const code = line.responseStatus?.code;
  if (code === undefined) return "quiet";
  if (code >= 500) return "bad";
  return code >= 400 ? "warn" : "quiet";
}
