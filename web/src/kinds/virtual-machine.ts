// Virtual machines and their instances, as far as the console looks at them.

import type { Condition, Thing } from "@/api/objects";
import { quantity } from "@/parts/quantity";
import type { Tone } from "@/parts/tone";
import { words } from "@/words";

export interface Disk {
  name: string;
  bootOrder?: number;
  serial?: string;
  disk?: { bus?: string };
  cdrom?: { bus?: string };
  lun?: { bus?: string };
}

export interface Volume {
  name: string;
  persistentVolumeClaim?: { claimName: string; hotpluggable?: boolean };
  dataVolume?: { name: string };
  cloudInitNoCloud?: CloudInit;
  cloudInitConfigDrive?: CloudInit;
  containerDisk?: { image: string };
  secret?: { secretName: string };
  configMap?: { name: string };
}

export interface CloudInit {
  userData?: string;
  networkData?: string;
  secretRef?: { name: string };
  networkDataSecretRef?: { name: string };
}

export interface Interface {
  name: string;
  model?: string;
  macAddress?: string;
  state?: string;
  bridge?: object;
  masquerade?: object;
}

export interface Network {
  name: string;
  pod?: object;
  multus?: { networkName: string };
}

export interface Devices {
  disks?: Disk[];
  interfaces?: Interface[];
  inputs?: unknown[];
}

export interface InstanceSpec {
  domain: {
    cpu?: { cores?: number; sockets?: number; threads?: number; model?: string };
    memory?: { guest?: string };
    machine?: { type?: string };
    firmware?: { bootloader?: { efi?: object; bios?: object } };
    devices: Devices;
    features?: object;
    resources?: { limits?: Record<string, string>; requests?: Record<string, string> };
  };
  volumes?: Volume[];
  networks?: Network[];
  nodeSelector?: Record<string, string>;
  hostname?: string;
  terminationGracePeriodSeconds?: number;
  evictionStrategy?: string;
}

export interface MachineSpec {
  runStrategy?: string;
  running?: boolean;
  template: { metadata?: { labels?: Record<string, string>; annotations?: Record<string, string> }; spec: InstanceSpec };
}

export interface MachineStatus {
  printableStatus?: string;
  ready?: boolean;
  created?: boolean;
  conditions?: Condition[];
}

export interface InstanceStatus {
  phase?: string;
  nodeName?: string;
  guestOSInfo?: { prettyName?: string; name?: string };
  interfaces?: { name?: string; ipAddress?: string; ipAddresses?: string[]; mac?: string; infoSource?: string }[];
  conditions?: Condition[];
  volumeStatus?: { name: string; target?: string; phase?: string; message?: string; hotplugVolume?: object }[];
  currentCPUTopology?: { cores?: number; sockets?: number; threads?: number };
  memory?: { guestCurrent?: string };
}

export type VirtualMachine = Thing<MachineSpec, MachineStatus>;
export type Instance = Thing<InstanceSpec, InstanceStatus>;

/** What claims are made for it, in an annotation as Harvester writes it. */
export const CLAIMS = "harvesterhci.io/volumeClaimTemplates";
export const SSH_NAMES = "harvesterhci.io/sshNames";
export const DESCRIPTION = "field.cattle.io/description";

const tones: Record<string, Tone> = {
  Running: "good",
  Stopped: "quiet",
  Paused: "warn",
  Starting: "busy",
  Provisioning: "busy",
  Stopping: "busy",
  Terminating: "busy",
  Migrating: "busy",
  WaitingForVolumeBinding: "busy",
  WaitingForReceiver: "busy",
};

export const statusOf = (vm: VirtualMachine) => vm.status?.printableStatus ?? "Stopped";
export const toneOfMachine = (vm: VirtualMachine): Tone => tones[statusOf(vm)] ?? "bad";

/** A machine that has none need not say so. */
export const devicesOf = (vm: { spec: MachineSpec }): Devices => (vm.spec.template.spec.domain.devices as Devices | undefined) ?? {};

export function cpusOf(vm: { spec: MachineSpec }): number {
  const { cores = 1, sockets = 1, threads = 1 } = vm.spec.template.spec.domain.cpu ?? {};
  return cores * sockets * threads;
}

export function memoryOf(vm: { spec: MachineSpec }): number | undefined {
  const { memory, resources } = vm.spec.template.spec.domain;
  return quantity(resources?.limits?.memory ?? memory?.guest ?? resources?.requests?.memory);
}

/** What whoever runs it can do about a condition; nothing where there is nothing to be done. */
export const remedyOf = ({ reason = "" }: Condition): string => words.vms.remedies[reason as keyof typeof words.vms.remedies] ?? "";

/** Addresses that somebody could reach it at. */
export function addressesOf(instance: Instance | undefined): string[] {
  const all = instance?.status?.interfaces?.flatMap((one) => one.ipAddresses ?? (one.ipAddress ? [one.ipAddress] : [])) ?? [];
  return [...new Set(all)].filter((one) => one !== "" && !one.startsWith("fe80:"));
}

export const nodeOf = (instance: Instance | undefined) => instance?.status?.nodeName ?? "";

export function isRunning(vm: VirtualMachine): boolean {
  return ["Running", "Paused", "Migrating"].includes(statusOf(vm));
}

/** Claims that only this machine would miss: what deleting it may take along. */
export function claimsOf(vm: VirtualMachine): { disk: string; claim: string }[] {
  return (vm.spec.template.spec.volumes ?? []).flatMap((volume) =>
    volume.persistentVolumeClaim ? [{ disk: volume.name, claim: volume.persistentVolumeClaim.claimName }] : [],
  );
}

/** Disks whose claims were made for it. One that was there before and was attached to it is not among them. */
export function disksMadeFor(vm: VirtualMachine): string[] {
  const made = new Set(claimsMadeFor(vm));
  return claimsOf(vm).flatMap(({ disk, claim }) => (made.has(claim) ? [disk] : []));
}

/** None where what is written there cannot be read: what nobody knows the origin of is kept. */
function claimsMadeFor(vm: VirtualMachine): string[] {
  try {
    const claims = JSON.parse(vm.metadata.annotations?.[CLAIMS] ?? "[]") as { metadata?: { name?: string } }[];
    return claims.flatMap((claim) => claim.metadata?.name ?? []);
  } catch {
    return [];
  }
}
