import { describe, expect, it } from "vitest";

import type { Claim } from "./claim";
import { type Clone, isMadeBy, messageOf, percentOf, standingOf, targetOf } from "./clone";
import type { VirtualMachine } from "./virtual-machine";

const metadata = { name: "c", namespace: "team", uid: "u", resourceVersion: "1", creationTimestamp: "" };
const spec = { source: { kind: "VirtualMachine", name: "web" }, target: { kind: "VirtualMachine", name: "copy" } };
const clone = (status?: object, more: object = {}) => ({ metadata: { ...metadata, ...more }, spec, status }) as Clone;

function machine(madeBy: string, ...claims: string[]): ReadonlyMap<string, VirtualMachine> {
  const volumes = claims.map((claimName) => ({ name: claimName, persistentVolumeClaim: { claimName } }));
  const vm = { metadata: { name: "copy", namespace: "team", annotations: { "sheaf.io/made-by": madeBy } }, spec: { template: { spec: { volumes } } } };
  return new Map([["team/copy", vm as unknown as VirtualMachine]]);
}

function claims(...all: [name: string, size: string, phase: string][]): ReadonlyMap<string, Claim> {
  return new Map(all.map(([name, storage, phase]) => [`team/${name}`, { metadata: { name }, spec: { resources: { requests: { storage } } }, status: { phase } } as Claim]));
}

describe("a clone", () => {
  it("is under way until it is over or has failed", () => {
    expect(standingOf(clone())).toBe("underWay");
    expect(standingOf(clone({ phase: "" }))).toBe("underWay");
    expect(standingOf(clone({ phase: "CreatingTargetVM" }))).toBe("underWay");
    expect(standingOf(clone({ phase: "Failed" }))).toBe("failed");
    expect(standingOf(clone({ phase: "Succeeded" }))).toBe("over");
    expect(standingOf(clone({ phase: "Failed" }, { deletionTimestamp: "x" }))).toBe("over");
  });

  it("says what the server says of it", () => {
    expect(messageOf(clone())).toBe("");
    expect(messageOf(clone({ conditions: [{ type: "Progressing", status: "False", message: "a" }, { type: "Ready", status: "False", message: "it is taken" }] }))).toBe("it is taken");
  });

  it("makes a machine of a name that was asked for or drawn", () => {
    expect(targetOf(clone())).toBe("copy");
    expect(targetOf({ metadata, spec: { source: spec.source }, status: { targetName: "clone-web-1" } } as Clone)).toBe("clone-web-1");
    expect(targetOf({ metadata, spec: { source: spec.source } } as Clone)).toBe("");
  });

  it("has made only what says so", () => {
    expect(isMadeBy(machine("u").get("team/copy"), clone())).toBe(true);
    expect(isMadeBy(machine("another").get("team/copy"), clone())).toBe(false);
    expect(isMadeBy(undefined, clone())).toBe(false);
  });

  it("is as far as its disks are, by their size", () => {
    const there = claims(["a", "1Gi", "Bound"], ["b", "3Gi", "Pending"]);
    expect(percentOf(clone(), machine("u", "a", "b"), there)).toBe(25);
    expect(percentOf(clone(), machine("another", "a", "b"), there)).toBeUndefined();
    expect(percentOf(clone(), machine("u", "a", "missing"), there)).toBeUndefined();
    expect(percentOf(clone(), machine("u", "b"), there)).toBeUndefined();
    expect(percentOf(clone(), machine("u"), there)).toBeUndefined();
    expect(percentOf(clone(), new Map(), there)).toBeUndefined();
  });
});
