// Ends what is under way, without a question: what is lost is work that can be done again.

import { remove, told } from "@/api/http";
import { addressOf, type Thing } from "@/api/objects";
import { words } from "@/words";

import { complain, say } from "./toasts";

/** Whether it was done, which is said. `action` is what it is called when it is refused. */
export async function callOff(name: string, said: string, end: () => Promise<unknown>, action = words.common.cancel): Promise<boolean> {
  try {
    await end();
    say(said);
    return true;
  } catch (why) {
    complain(words.common.failed(action, name, told(why)));
    return false;
  }
}

/** What is under way for a thing that is of no use without it goes with the thing. None if whoever looks may not delete it. */
export function cancelOf(thing: Thing, name: string, said: string, action = words.common.cancel): (() => Promise<boolean>) | undefined {
  if (!thing.links.remove || thing.metadata.deletionTimestamp) return undefined;
  return () => callOff(name, said, () => remove(addressOf(thing.type, thing.id)), action);
}
