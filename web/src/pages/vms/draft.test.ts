import { describe, expect, it } from "vitest";
import { parse } from "yaml";

import {
  asText, diskSizeOf, firmwareOf, fresh, imageOf, keysOf, made, misshapen, networkOf, setCpus, setDiskSize, setFirmware, setImage, setKeys, setMemory,
  setName, setNetwork, setUserData, userDataOf, withKeys,
} from "./draft";

const image = { id: "default/debian", storageClass: "longhorn-debian", virtualSize: 12 * 2 ** 30, isDisc: false };
const keys = [
  { id: "default/anna", publicKey: "ssh-ed25519 AAAA anna" },
  { id: "default/bert", publicKey: "ssh-ed25519 BBBB bert" },
];

function draft() {
  const one = fresh("default");
  setName(one, "web");
  setImage(one, image);
  return one;
}

describe("a draft", () => {
  it("has a disk of its image, large enough for it, that follows the machine's name", () => {
    const one = draft();
    expect(imageOf(one)).toBe("default/debian");
    expect(diskSizeOf(one)).toBe(12);
    setName(one, "db");
    const text = asText(one);
    expect(text).toContain("claimName: db-disk-0");
    expect(text).not.toContain("web-disk-0");
    expect(one.spec.template.spec.hostname).toBe("db");
    setDiskSize(one, 40);
    setImage(one, undefined);
    expect([imageOf(one), diskSizeOf(one)]).toEqual(["", 40]);
  });

  it("is the same after it was written as YAML and read again", () => {
    const one = draft();
    setCpus(one, 4);
    setMemory(one, 1536);
    setKeys(one, ["default/anna"], keys);
    expect(parse(asText(one))).toEqual(one);
    expect(one.spec.template.spec.domain.resources?.limits).toEqual({ cpu: "4", memory: "1536Mi" });
  });

  it("keeps what somebody wrote into it by hand", () => {
    const one = draft();
    one.spec.template.spec.nodeSelector = { zone: "a" };
    one.spec.template.spec.networks?.push({ name: "second", multus: { networkName: "default/vlan" } });
    one.spec.template.spec.domain.devices.interfaces?.push({ name: "second", bridge: {} });
    setNetwork(one, "default/other");
    setName(one, "x");
    expect(networkOf(one)).toBe("default/other");
    expect(one.spec.template.spec.networks).toHaveLength(2);
    expect(one.spec.template.spec.nodeSelector).toEqual({ zone: "a" });
    setNetwork(one, "");
    expect(one.spec.template.spec.networks?.[0]).toEqual({ name: "default", pod: {} });
  });

  it("brings the chosen keys into the user data, and takes them out again", () => {
    const one = draft();
    setUserData(one, "#cloud-config\npackages: [nginx]\nssh_authorized_keys: [ssh-rsa CCCC hand]\n");
    setKeys(one, ["default/anna", "default/bert"], keys);
    expect(keysOf(one)).toEqual(["default/anna", "default/bert"]);
    expect(parse(userDataOf(one))).toEqual({ packages: ["nginx"], ssh_authorized_keys: ["ssh-rsa CCCC hand", "ssh-ed25519 AAAA anna", "ssh-ed25519 BBBB bert"] });
    setKeys(one, [], keys);
    expect(parse(userDataOf(one))).toEqual({ packages: ["nginx"], ssh_authorized_keys: ["ssh-rsa CCCC hand"] });
    expect(keysOf(one)).toEqual([]);
  });

  it("has no disk for cloud-init when there is nothing to say", () => {
    const one = draft();
    setKeys(one, ["default/anna"], keys);
    expect(one.spec.template.spec.volumes).toHaveLength(2);
    setKeys(one, [], keys);
    expect(one.spec.template.spec.volumes).toHaveLength(1);
    expect(one.spec.template.spec.domain.devices.disks).toHaveLength(1);
  });

  it("writes no keys into what is not cloud-config", () => {
    expect(withKeys("#!/bin/sh\necho", new Set(), ["k"])).toBe("#!/bin/sh\necho");
    expect(withKeys("#cloud-config\na: [", new Set(), ["k"])).toBe("#cloud-config\na: [");
  });

  it("can be many, each with its own name and disk", () => {
    const all = Array.from({ length: 12 }, (_, index) => made(draft(), index + 1, 12, "x").vm);
    expect(all[0]?.metadata.name).toBe("web-01");
    expect(all[11]?.spec.template.spec.volumes?.[0]?.persistentVolumeClaim?.claimName).toBe("web-12-disk-0");
    expect(all[11]?.spec.template.spec.hostname).toBe("web-12");
    expect(made(draft(), 1, 1, "x").vm.metadata.name).toBe("web");
  });

  it("puts what does not fit into a secret", () => {
    const one = draft();
    setUserData(one, `#cloud-config\n# ${"x".repeat(3000)}\n`);
    const { vm, secret } = made(one, 1, 1, "k3");
    expect(secret?.stringData.userdata).toBe(userDataOf(one));
    expect(userDataOf(vm)).toBe("");
    expect(vm.spec.template.spec.volumes?.[1]?.cloudInitNoCloud?.secretRef).toEqual({ name: "web-cloud-init-k3" });
    expect(userDataOf(one)).not.toBe("");
  });

  it("boots with UEFI only where that was asked for", () => {
    const one = draft();
    for (const firmware of ["uefi", "secureBoot", "bios"] as const) {
      setFirmware(one, firmware);
      expect(firmwareOf(one)).toBe(firmware);
    }
    expect(one.spec.template.spec.domain.features).toBeUndefined();
  });

  it("keeps what only the YAML knows, whatever is chosen in the form", () => {
    const one = draft();
    const { domain } = one.spec.template.spec;
    Object.assign(domain, { firmware: { uuid: "u-1", bootloader: { efi: { persistent: true } } } });
    Object.assign(domain.devices.interfaces?.[0] ?? {}, { macAddress: "52:54:00:00:00:01", model: "e1000e" });
    const claims = JSON.parse(one.metadata.annotations?.["harvesterhci.io/volumeClaimTemplates"] ?? "");
    claims[0].metadata.labels = { keep: "me" };
    claims[0].spec.accessModes = ["ReadWriteOnce"];
    one.metadata.annotations = { "harvesterhci.io/volumeClaimTemplates": JSON.stringify(claims) };
    Object.assign(domain.devices.disks?.[0] ?? {}, { disk: { bus: "scsi" }, serial: "s-1" });
    setFirmware(one, "secureBoot");
    setFirmware(one, "bios");
    setNetwork(one, "default/vlan");
    setNetwork(one, "");
    setImage(one, { ...image, id: "default/other" });
    setImage(one, undefined);
    setName(one, "kept");
    expect(domain.firmware).toEqual({ uuid: "u-1" });
    expect(domain.devices.interfaces?.[0]).toEqual({ name: "default", macAddress: "52:54:00:00:00:01", model: "e1000e", masquerade: {} });
    expect(domain.devices.disks?.[0]).toMatchObject({ disk: { bus: "scsi" }, serial: "s-1" });
    const [claim] = JSON.parse(one.metadata.annotations?.["harvesterhci.io/volumeClaimTemplates"] ?? "");
    expect(claim).toMatchObject({ metadata: { name: "kept-disk-0", labels: { keep: "me" } }, spec: { accessModes: ["ReadWriteOnce"] } });
  });

  it("has its user data from one place", () => {
    const one = draft();
    one.spec.template.spec.volumes?.push({ name: "seed", cloudInitNoCloud: { secretRef: { name: "s" }, networkDataSecretRef: { name: "s" } } });
    setUserData(one, "#cloud-config\na: 1\n");
    expect(one.spec.template.spec.volumes?.[1]?.cloudInitNoCloud).toEqual({ networkDataSecretRef: { name: "s" }, userData: "#cloud-config\na: 1\n" });
  });

  it("names its keys where the server looks for them", () => {
    const one = draft();
    setKeys(one, ["default/anna"], keys);
    expect(one.spec.template.metadata?.annotations).toEqual({ "harvesterhci.io/sshNames": '["default/anna"]' });
  });

  it("stumbles over nothing that can be typed", () => {
    type Loose = { metadata: Record<string, unknown>; spec: { template: { spec: Record<string, unknown> & { domain: Record<string, unknown> } } } };
    const typed = (change: (one: Loose) => void) => {
      const one = structuredClone(draft()) as unknown as Loose;
      change(one);
      return misshapen(one);
    };
    expect(typed((one) => (one.spec.template.spec.domain.devices = null))).toContain("devices");
    expect(typed((one) => (one.spec.template.spec.volumes = {}))).toContain("volumes");
    expect(typed((one) => (one.spec.template.spec.networks = [null]))).toContain("networks");
    expect(typed((one) => delete one.metadata.name)).toContain("metadata.name");
    expect(typed((one) => (one.spec.template.spec.domain.cpu = 3))).toContain("cpu");
    const odd = draft();
    for (const claims of ["[{}]", "[null]", "7", "{", '[{"metadata":{"name":"a"},"spec":{}}]']) {
      odd.metadata.annotations = { "harvesterhci.io/volumeClaimTemplates": claims };
      expect([imageOf(odd), diskSizeOf(odd)]).toEqual(["", 10]);
      setDiskSize(odd, 3);
    }
  });

  it("says what is missing in what was typed", () => {
    expect(misshapen(null)).toBe("it is empty");
    expect(misshapen({ kind: "Pod" })).toContain("VirtualMachine");
    expect(misshapen({ kind: "VirtualMachine", metadata: { name: "a", namespace: "b" }, spec: {} })).toContain("spec.template");
    expect(misshapen(draft())).toBeUndefined();
  });
});
