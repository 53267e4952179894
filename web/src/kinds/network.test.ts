import { describe, expect, it } from "vitest";

import { isCarried, meaningOf, newAttachment, readRanges, type Tagging, writeRanges } from "./network";

describe("a network", () => {
  it("is read as people would say it", () => {
    expect(meaningOf('{"bridge":"mgmt-br","vlan":100,"mtu":1500}')).toEqual({ tagging: "vlan", clusterNetwork: "mgmt", vlan: 100, mtu: 1500 });
    expect(meaningOf('{"bridge":"lab-br","vlan":0}')).toEqual({ tagging: "untagged", clusterNetwork: "lab" });
    expect(meaningOf('{"bridge":"lab-br","vlanTrunk":[{"id":5},{"minID":10,"maxID":20}]}')?.ranges).toEqual([[5, 5], [10, 20]]);
    for (const odd of ["", "null", "{", "3"]) expect(meaningOf(odd), odd).toBeUndefined();
  });

  it("is written so that it is read back", () => {
    const wanted: { tagging: Tagging; vlan?: number; ranges?: [number, number][] }[] = [{ tagging: "untagged" }, { tagging: "vlan", vlan: 7 }, { tagging: "trunk", ranges: [[2, 9]] }];
    for (const one of wanted) {
      const made = newAttachment({ name: "n", namespace: "default", clusterNetwork: "mgmt", ...one });
      expect(meaningOf(made.spec.config)).toEqual({ clusterNetwork: "mgmt", ...one });
    }
  });

  it("takes ranges of VLANs and refuses what is none", () => {
    expect(readRanges("10, 20-29 ,4094")).toEqual([[10, 10], [20, 29], [4094, 4094]]);
    expect(writeRanges([[10, 10], [20, 29]])).toBe("10, 20–29");
    for (const odd of ["", "0", "4095", "9-3", "a", "1-2-3", "1,,x"]) expect(readRanges(odd), odd).toBeUndefined();
  });

  it("is carried by the nodes when it is the untagged one of mgmt", () => {
    expect(isCarried({ tagging: "untagged", clusterNetwork: "mgmt" })).toBe(true);
    expect(isCarried({ tagging: "vlan", clusterNetwork: "mgmt" })).toBe(false);
    expect(isCarried({ tagging: "untagged", clusterNetwork: "lab" })).toBe(false);
  });
});
