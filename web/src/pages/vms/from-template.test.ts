import { describe, expect, it } from "vitest";

import type { VersionSpec } from "@/kinds/template";

import { claimsIn, imageOf, made, setImage, setName } from "./draft";
import { asksForDisc, asksForImage, fromVersion, newVersion } from "./from-template";

const claim = (name: string, image?: string) => ({
  metadata: { name, ...(image === undefined ? {} : { annotations: { "harvesterhci.io/imageId": image } }) },
  spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block", resources: { requests: { storage: "10Gi" } } },
});
const version: VersionSpec = {
  templateId: "harvester-public/iso",
  vm: {
    metadata: {
      labels: { "harvesterhci.io/os": "linux" },
      annotations: { "harvesterhci.io/volumeClaimTemplates": JSON.stringify([claim("pvc-cdrom", ""), claim("pvc-root")]), "harvesterhci.io/mac-address": "{}", other: "kept" },
    },
    spec: {
      runStrategy: "Halted",
      template: {
        spec: {
          hostname: "old",
          domain: {
            devices: {
              disks: [{ name: "cdrom-disk", cdrom: { bus: "sata" }, bootOrder: 2 }, { name: "rootdisk", disk: { bus: "virtio" }, bootOrder: 1 }],
              interfaces: [{ name: "default", macAddress: "aa:bb:cc:dd:ee:ff", masquerade: {} }],
            },
          },
          volumes: [
            { name: "cdrom-disk", persistentVolumeClaim: { claimName: "pvc-cdrom" } },
            { name: "rootdisk", persistentVolumeClaim: { claimName: "pvc-root" } },
            { name: "shared", persistentVolumeClaim: { claimName: "somebody-elses" } },
          ],
        },
      },
    },
  },
};

describe("a draft from a template", () => {
  it("calls every disk of its own after the machine, and none of somebody else's", () => {
    const draft = fromVersion(version, "team");
    setName(draft, "web");
    expect(claimsIn(draft).map((one) => one.metadata.name)).toEqual(["web-cdrom-disk", "web-rootdisk"]);
    expect(draft.spec.template.spec.volumes?.map((one) => one.persistentVolumeClaim?.claimName)).toEqual(["web-cdrom-disk", "web-rootdisk", "somebody-elses"]);
    expect(made(draft, 2, 3, "x").vm.spec.template.spec.volumes?.[1]?.persistentVolumeClaim?.claimName).toBe("web-2-rootdisk");
  });

  it("leaves behind what was one machine's own", () => {
    const draft = fromVersion(version, "team");
    setName(draft, "web");
    expect(draft.metadata).toMatchObject({ namespace: "team", labels: { "harvesterhci.io/os": "linux" } });
    expect(draft.metadata.annotations).toHaveProperty("other");
    expect(draft.metadata.annotations).not.toHaveProperty("harvesterhci.io/mac-address");
    expect(draft.spec.template.spec.domain.devices.interfaces?.[0]).not.toHaveProperty("macAddress");
    expect(draft.spec.template.spec.hostname).toBe("web");
    expect(version.vm.spec.template.spec.hostname).toBe("old");
  });

  it("takes the image it asks for into the disk that is there, without another disk", () => {
    const draft = fromVersion(version, "team");
    setName(draft, "web");
    expect([asksForImage(draft), asksForDisc(draft)]).toEqual([true, true]);
    setImage(draft, { id: "team/debian-iso", storageClass: "c", virtualSize: 1, isDisc: true });
    expect(asksForImage(draft)).toBe(false);
    expect(imageOf(draft)).toBe("team/debian-iso");
    expect(draft.spec.template.spec.domain.devices.disks).toEqual(version.vm.spec.template.spec.domain.devices.disks);
    expect(draft.spec.template.spec.volumes).toHaveLength(3);
    setImage(draft, { id: "team/debian", storageClass: "c", virtualSize: 1, isDisc: false });
    expect(draft.spec.template.spec.domain.devices.disks?.map((one) => one.name)).toEqual(["cdrom-disk", "rootdisk"]);
    expect(draft.spec.template.spec.domain.devices.disks?.[0]).toEqual({ name: "cdrom-disk", disk: { bus: "virtio" }, bootOrder: 2 });
  });

  it("comes back from the version that was made of it", () => {
    const draft = fromVersion(version, "team");
    setName(draft, "web");
    const saved = newVersion("web-base", draft, "for people");
    expect(saved.spec).toMatchObject({ templateId: "team/web-base", description: "for people", keyPairIds: [] });
    expect(saved.metadata).toEqual({ generateName: "web-base-", namespace: "team" });
    const again = fromVersion(saved.spec, "team");
    setName(again, "web");
    expect(again).toEqual(draft);
  });

  it("asks for no image where the disk is meant to be empty", () => {
    const empty = structuredClone(version);
    empty.vm.metadata = { annotations: { "harvesterhci.io/volumeClaimTemplates": JSON.stringify([claim("pvc-root")]) } };
    expect(asksForImage(fromVersion(empty, "team"))).toBe(false);
  });
});

it("gives devices to a draft of a template that says nothing of any", () => {
  const bare = JSON.parse('{"templateId": "a/b", "vm": {"spec": {"template": {"spec": {"domain": {}}}}}}') as VersionSpec;
  expect(fromVersion(bare, "default").spec.template.spec.domain.devices).toEqual({});
});
