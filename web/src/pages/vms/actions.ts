// What can be done with a machine: what the server offers, in the order and the words of people.

import { ask, get, post, told } from "@/api/http";
import { addressOf, idOf, types } from "@/api/objects";
import { type Clone, isMadeBy, nameOf, standingOf, targetOf } from "@/kinds/clone";
import { disksMadeFor, type VirtualMachine } from "@/kinds/virtual-machine";
import type { MenuItem } from "@/parts/ActionMenu.vue";
import { callOff, takeAway, unlessGone } from "@/parts/cancelling";
import { complain, say } from "@/parts/toasts";
import { words } from "@/words";

/** Those that need nothing but to be asked for; the rest have a form or a page of their own. */
export const simple = ["start", "stop", "forceStop", "restart", "softreboot", "pause", "unpause", "dismissInsufficientResourceQuota"] as const;
export type Simple = (typeof simple)[number];
export const withForm = ["snapshot", "restore", "clone", "createTemplate", "cpuAndMemoryHotplug", "addVolume", "addNic", "ejectCdRom"] as const;

export const isSimple = (action: string): action is Simple => (simple as readonly string[]).includes(action);
const isKnown = (action: string) => isSimple(action) || (withForm as readonly string[]).includes(action);

export function menuOf(vm: VirtualMachine): MenuItem[] {
  const offered = Object.keys(vm.actions ?? {}).filter(isKnown);
  const order = [...simple, ...withForm] as string[];
  offered.sort((one, other) => order.indexOf(one) - order.indexOf(other));
  const items: MenuItem[] = offered.map((key) => ({ key, title: words.vms.actions[key as keyof typeof words.vms.actions] }));
  if (vm.links.remove) items.push({ key: "delete", title: words.common.delete, danger: true });
  return items;
}

/** Does it to every one that offers it, and says of whom it was refused. Where none does any more, the server says why not. */
export async function act(action: Simple, vms: VirtualMachine[]): Promise<void> {
  const title = words.vms.actions[action];
  const offering = vms.filter((vm) => vm.actions?.[action]);
  const able = offering.length > 0 ? offering : vms;
  const results = await Promise.allSettled(able.map((vm) => post(`${addressOf(types.virtualMachine, vm.id)}?action=${action}`)));
  const done: string[] = [];
  results.forEach((result, index) => {
    const name = able[index]?.metadata.name ?? "";
    if (result.status === "fulfilled") done.push(name);
    else complain(words.common.failed(title, name, told(result.reason)));
  });
  if (done.length > 0) say(words.common.done(title, done.length > 3 ? words.vms.count(done.length) : done.join(", ")));
}

/** `disks` go with it; all others stay. */
export async function removeMachine(vm: VirtualMachine, disks: string[]): Promise<void> {
  const query = new URLSearchParams(disks.map((disk) => ["removedDisks", disk]));
  await ask("DELETE", `${addressOf(types.virtualMachine, vm.id)}${disks.length > 0 ? `?${query}` : ""}`);
}

/**
 * The clone goes first, or it would make its machine again. Only a machine that it made goes with it, and only the disks that were
 * made for that one. All as it is now, and not as it was heard of last: what was finished meanwhile is somebody's machine.
 */
export function cancelClone(clone: Clone, title: string): Promise<boolean> {
  const address = addressOf(types.clone, clone.id);
  return callOff(title, async () => {
    const now = await unlessGone(get<Clone>(address));
    if (now?.status?.phase === "Succeeded") return words.vms.cloneFinished(nameOf(now));
    if (!now || standingOf(now) === "over") return words.vms.cloneGone(nameOf(clone));
    await takeAway(address);
    const vm = targetOf(now) === "" ? undefined : await unlessGone(get<VirtualMachine>(addressOf(types.virtualMachine, idOf(now.metadata.namespace, targetOf(now)))));
    if (isMadeBy(vm, now)) await unlessGone(removeMachine(vm, disksMadeFor(vm)));
    return words.vms.cloneCancelled(nameOf(now));
  });
}
