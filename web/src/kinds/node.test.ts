import { expect, it } from "vitest";

import type { Condition } from "@/api/objects";
import { words } from "@/words";

import { addressesOfNode, isTrouble, type Node, promisedStorage, remedyOf, rolesOf, runsOnKvm, stateOfNode, titleOf, versionOf } from "./node";

function node(conditions: Condition[], more: { unschedulable?: boolean; labels?: Record<string, string> } = {}): Node {
  return {
    id: "n1",
    type: "node",
    apiVersion: "v1",
    kind: "Node",
    links: {},
    metadata: { name: "n1", uid: "1", resourceVersion: "1", creationTimestamp: "", labels: more.labels ?? {}, annotations: { "sheaf.io/volume-storage-promised": "10Gi" } },
    spec: more.unschedulable ? { unschedulable: true } : undefined,
    status: { conditions, addresses: [{ type: "InternalIP", address: "10.0.0.1" }, { type: "Hostname", address: "n1" }] },
  };
}

const ready = { type: "Ready", status: "True" };

it("says how a host stands, the worst first", () => {
  expect(stateOfNode(node([ready])).text).toBe(words.hosts.ready);
  expect(stateOfNode(node([{ type: "Ready", status: "False" }], { unschedulable: true })).text).toBe(words.hosts.notReady);
  expect(stateOfNode(node([{ type: "Ready", status: "Unknown" }])).text).toBe(words.hosts.silent);
  expect(stateOfNode(node([])).text).toBe(words.hosts.silent);
  expect(stateOfNode(node([ready], { unschedulable: true })).text).toBe(words.hosts.cordoned);
  expect(stateOfNode(node([ready, { type: "DiskPressure", status: "True" }])).text).toBe(words.hosts.pressed);
});

it("knows which conditions are bad news, and what to do about them", () => {
  expect(isTrouble({ type: "MemoryPressure", status: "False" })).toBe(false);
  expect(isTrouble({ type: "MemoryPressure", status: "Unknown" })).toBe(true);
  expect(isTrouble({ type: "KvmUsable", status: "False" })).toBe(true);
  expect(isTrouble({ type: "Whatever", status: "False" })).toBe(false);
  expect(remedyOf({ type: "KvmUsable", status: "False" })).toBe(words.hosts.remedies.KvmUsable);
  expect(remedyOf({ type: "Ready", status: "False", reason: "NoHypervisor" })).toBe(words.hosts.remedies.NoHypervisor);
  expect(remedyOf(ready)).toBe("");
});

it("reads what stands in labels, annotations and addresses", () => {
  const one = node([], { labels: { "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "", other: "" } });
  expect(rolesOf(one)).toEqual(["control-plane", "worker"]);
  expect(promisedStorage(one)).toBe(10 * 2 ** 30);
  expect(addressesOfNode(one)).toEqual(["10.0.0.1"]);
  expect(runsOnKvm(one)).toBeUndefined();
  expect(versionOf({ ...one, status: { nodeInfo: { kubeletVersion: "v1.34.1+sheaf0.1.0" } } })).toBe("0.1.0");
  expect(versionOf({ ...one, status: { nodeInfo: { kubeletVersion: "v1.34.1" } } })).toBe("v1.34.1");
  expect(titleOf({ type: "Another", status: "True" })).toBe("Another");
});
