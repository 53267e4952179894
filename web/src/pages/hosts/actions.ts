// What can be done with a host: what the server offers, and its reason where it refuses.

import { post, Refusal, told } from "@/api/http";
import { addressOf, types } from "@/api/objects";
import type { Node } from "@/kinds/node";
import type { MenuItem } from "@/parts/ActionMenu.vue";
import { complain, say } from "@/parts/toasts";
import { words } from "@/words";

const known = ["cordon", "uncordon", "maintenancePossible"] as const;
type Known = (typeof known)[number];

export const menuOf = (node: Node): MenuItem[] => known.filter((key) => node.actions?.[key]).map((key) => ({ key, title: words.hosts.actions[key] }));

export async function act(key: string, node: Node): Promise<void> {
  const action = key as Known;
  const name = node.metadata.name;
  try {
    await post(`${addressOf(types.node, node.id)}?action=${action}`);
    const said = { cordon: words.hosts.cordoning, uncordon: words.hosts.uncordoning, maintenancePossible: words.hosts.canBeEmptied };
    say(said[action](name));
  } catch (why) {
    // That it cannot be emptied is the answer to a question, and not the refusal to answer.
    const isAnswer = action === "maintenancePossible" && why instanceof Refusal;
    complain(isAnswer ? words.hosts.cannotBeEmptied(name, told(why)) : words.common.failed(words.hosts.actions[action], name, told(why)));
  }
}
