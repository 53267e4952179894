import { describe, expect, it } from "vitest";

import { CLAIMS, disksMadeFor, type VirtualMachine } from "./virtual-machine";

function machine(claims: string | undefined, ...disks: [name: string, claimName: string][]): VirtualMachine {
  const volumes = disks.map(([name, claimName]) => ({ name, persistentVolumeClaim: { claimName } }));
  const annotations = claims === undefined ? {} : { [CLAIMS]: claims };
  return { metadata: { name: "copy", annotations }, spec: { template: { spec: { volumes: [...volumes, { name: "seed", cloudInitNoCloud: {} }] } } } } as unknown as VirtualMachine;
}

describe("the disks that were made for a machine", () => {
  const claims = JSON.stringify([{ metadata: { name: "copy-root" } }, { metadata: { name: "copy-data" } }]);

  it("are those whose claims it names as its own, and not what was attached to it", () => {
    expect(disksMadeFor(machine(claims, ["root", "copy-root"], ["lent", "somebodys"], ["data", "copy-data"]))).toEqual(["root", "data"]);
    expect(disksMadeFor(machine(claims, ["copy-root", "somebodys"]))).toEqual([]);
  });

  it("are none where that is not said, or cannot be read", () => {
    for (const unclear of [undefined, "", "[", "{}", "null", "[null]", "[{}]"]) expect(disksMadeFor(machine(unclear, ["root", "copy-root"]))).toEqual([]);
  });
});
