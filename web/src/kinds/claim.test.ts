import { describe, expect, it } from "vitest";

import { type Claim, classesForEmpty, isBeingCopied, leastGrowth, newClaim, standingOf, type StorageClass, usersOf } from "./claim";
import type { VirtualMachine } from "./virtual-machine";

function claim(wanted: string, has: string, phase = "Bound"): Claim {
  const metadata = { name: "a", namespace: "default", uid: "u", resourceVersion: "1", creationTimestamp: "" };
  return { metadata, spec: { resources: { requests: { storage: wanted } } }, status: { phase, capacity: { storage: has } } } as Claim;
}

describe("a volume", () => {
  it("says how it stands", () => {
    expect(standingOf(claim("10Gi", "10Gi"))).toBe("ready");
    expect(standingOf(claim("10240Mi", "10Gi"))).toBe("ready");
    expect(standingOf(claim("12Gi", "10Gi"))).toBe("growing");
    expect(standingOf(claim("12Gi", "", "Pending"))).toBe("waiting");
    const going = claim("1Gi", "1Gi");
    going.metadata.deletionTimestamp = "2026-01-01T00:00:00Z";
    expect(standingOf(going)).toBe("deleting");
  });

  it("is being copied while it waits for what something else holds", () => {
    const copy = claim("1Gi", "", "Pending");
    expect(isBeingCopied(copy)).toBe(false);
    copy.spec.dataSource = { kind: "PersistentVolumeClaim", name: "a" };
    expect(isBeingCopied(copy)).toBe(true);
    expect(isBeingCopied({ ...copy, status: { phase: "Bound" } })).toBe(false);
    expect(isBeingCopied({ ...copy, metadata: { ...copy.metadata, deletionTimestamp: "x" } })).toBe(false);
  });

  it("grows by whole gibibytes and never by nothing", () => {
    expect(leastGrowth(claim("10Gi", "10Gi"))).toBe(11);
    expect(leastGrowth(claim("1536Mi", "1536Mi"))).toBe(2);
    expect(leastGrowth(claim("20Gi", "10Gi"))).toBe(21);
  });

  it("knows every machine that has it, of its own namespace", () => {
    const machine = (namespace: string, name: string, ...claims: string[]) =>
      ({ metadata: { namespace, name }, spec: { template: { spec: { volumes: claims.map((claimName, index) => ({ name: `d${index}`, persistentVolumeClaim: { claimName } })) } } } }) as unknown as VirtualMachine;
    const users = usersOf([machine("a", "web", "one", "two", "one"), machine("a", "db", "one"), machine("b", "web", "one")]);
    expect(users.get("a/one")?.map((vm) => vm.metadata.name)).toEqual(["web", "db"]);
    expect(users.get("a/two")).toHaveLength(1);
    expect(users.get("b/two")).toBeUndefined();
  });

  it("is of a class that no image made, the default before others", () => {
    const named = (name: string, more: object = {}) => ({ metadata: { name, annotations: {} }, ...more }) as unknown as StorageClass;
    const standard = { metadata: { name: "z", annotations: { "storageclass.kubernetes.io/is-default-class": "true" } } } as unknown as StorageClass;
    expect(classesForEmpty([named("b"), named("image", { parameters: { backingImage: "x" } }), standard, named("a")])).toEqual(["z", "a", "b"]);
  });

  it("names the image it is of, if any", () => {
    const wanted = { name: "n", namespace: "default", gibibytes: 3, storageClass: "c" };
    expect(newClaim(wanted).metadata).toEqual({ name: "n", namespace: "default" });
    expect(newClaim({ ...wanted, image: "default/i" }).metadata.annotations).toEqual({ "harvesterhci.io/imageId": "default/i" });
    expect(newClaim(wanted).spec.resources.requests.storage).toBe("3Gi");
  });
});
