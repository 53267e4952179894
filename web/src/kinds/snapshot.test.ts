import { expect, it } from "vitest";

import type { Backup } from "./backup";
import { isUnderWay, newMachineOf, partOf, type Restore, standingOf, troubleOf, type VolumeSnapshot } from "./snapshot";

const metadata = { name: "monday", namespace: "team", uid: "u", resourceVersion: "1", creationTimestamp: "" };

it("a snapshot is ready, failed, on its way there or on its way out", () => {
  const of = (status: object, more: object = {}) => standingOf({ metadata: { ...metadata, ...more }, status } as VolumeSnapshot);
  expect(of({ readyToUse: true })).toBe("ready");
  expect(of({ readyToUse: false, error: { message: "no room" } })).toBe("failed");
  expect(of({})).toBe("underWay");
  expect(of({ readyToUse: true }, { deletionTimestamp: "x" })).toBe("deleting");
});

it("a snapshot of a volume says which machine's snapshot it is a part of", () => {
  const owned = (kind: string) => partOf({ metadata: { ...metadata, ownerReferences: [{ kind, name: "web-1", uid: "x" }] } } as VolumeSnapshot);
  expect(owned("VirtualMachineBackup")).toBe("web-1");
  expect(owned("PersistentVolumeClaim")).toBeUndefined();
});

it("a restore into a new machine stays in the namespace of its snapshot", () => {
  const restore = newMachineOf({ metadata } as Backup, "web-again");
  expect(restore.metadata.namespace).toBe("team");
  expect(restore.spec).toMatchObject({ newVM: true, virtualMachineBackupName: "monday", virtualMachineBackupNamespace: "team", target: { name: "web-again" } });
});

it("a restore is under way until it is complete, and says what is in its way", () => {
  const restore = { metadata, status: { conditions: [{ type: "Ready", status: "False", reason: "Error", message: "gone" }] } } as Restore;
  expect(isUnderWay(restore)).toBe(true);
  expect(troubleOf(restore)).toBe("gone");
  expect(isUnderWay({ metadata, status: { complete: true } } as Restore)).toBe(false);
});
