// What can be done with a volume: what the server offers, in the order and the words of people.

import { type Claim, standingOf } from "@/kinds/claim";
import type { VirtualMachine } from "@/kinds/virtual-machine";
import type { MenuItem } from "@/parts/ActionMenu.vue";
import { cancelOf } from "@/parts/cancelling";
import { words } from "@/words";

const actions = ["snapshot", "clone", "export"] as const;

export function menuOf(claim: Claim): MenuItem[] {
  const items: MenuItem[] = actions.filter((action) => claim.actions?.[action]).map((key) => ({ key, title: words.volumes[key] }));
  if (claim.links.update && ["ready", "growing"].includes(standingOf(claim))) items.unshift({ key: "grow", title: words.volumes.grow });
  if (claim.links.remove && standingOf(claim) !== "deleting") items.push({ key: "delete", title: words.common.delete, danger: true });
  return items;
}

/** One that a machine has is that machine's: deleting it is refused. */
export function cancelCopy(claim: Claim, users: VirtualMachine[]): (() => Promise<boolean>) | undefined {
  const { name } = claim.metadata;
  return users.length > 0 ? undefined : cancelOf(claim, name, words.volumes.cancelled(name));
}
