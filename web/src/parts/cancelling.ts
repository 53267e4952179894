// Ends what is under way, without a question: what is lost is work that can be done again.

import { Refusal, remove, told } from "@/api/http";
import { addressOf, type Thing } from "@/api/objects";
import { words } from "@/words";

import { complain, say } from "./toasts";

/** Whether it was done. `end` answers what is said of it then; `action` is what it is called when it is refused. */
export async function callOff(name: string, end: () => Promise<string>, action = words.common.cancel): Promise<boolean> {
  try {
    say(await end());
    return true;
  } catch (why) {
    complain(words.common.failed(action, name, told(why)));
    return false;
  }
}

/** What is gone already is what was wanted: somebody else was faster. */
export async function takeAway(path: string): Promise<void> {
  await unlessGone(remove(path));
}

/** Nothing, of what is not there any more. */
export async function unlessGone<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (why) {
    if (why instanceof Refusal && why.status === 404) return undefined;
    throw why;
  }
}

/** What is under way for a thing that is of no use without it goes with the thing. None if whoever looks may not delete it. */
export function cancelOf(thing: Thing, name: string, said: string, action = words.common.cancel): (() => Promise<boolean>) | undefined {
  if (!thing.links.remove || thing.metadata.deletionTimestamp) return undefined;
  return () =>
    callOff(
      name,
      async () => {
        await takeAway(addressOf(thing.type, thing.id));
        return said;
      },
      action,
    );
}
