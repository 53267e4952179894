// Files on their way from this browser to a node. They go on while other pages are looked at, and after a line that broke: the node
// says how much of a file it has, and the rest is sent.

import { reactive, watch } from "vue";

import { csrfWord, get, post, Refusal, refusalOf, told } from "@/api/http";
import { addressOf, types } from "@/api/objects";
import { person } from "@/api/session";
import { type Image, isImported } from "@/kinds/image";
import { complain, say } from "@/parts/toasts";
import { words } from "@/words";

export interface Upload {
  id: string;
  name: string;
  size: number;
  sent: number;
  isCancelled: boolean;
}

/** Milliseconds: how long no byte may get through before it is given up. The node keeps what it has for ten minutes. */
const PATIENCE = 9 * 60_000;
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 15_000;

export const uploads = reactive(new Map<string, Upload>());
const requests = new Map<string, XMLHttpRequest>();

addEventListener("beforeunload", (event) => {
  if (uploads.size > 0) event.preventDefault();
});

/** The image is there when it returns; its bytes follow. */
export async function begin(namespace: string, displayName: string, file: File): Promise<void> {
  const made = await post<{ id: string }>(addressOf(types.image), {
    type: types.image,
    apiVersion: "harvesterhci.io/v1beta1",
    kind: "VirtualMachineImage",
    metadata: { generateName: "image-", namespace, annotations: { "harvesterhci.io/image-name": file.name } },
    spec: { displayName, sourceType: "upload" },
  });
  start(made.id, displayName, file, 0);
}

/** One that this page knows nothing of any more: the node says how much of the file it has. */
export async function goOn(id: string, displayName: string, file: File): Promise<void> {
  const { offset } = await get<{ offset: number }>(`${place(id)}/upload`);
  start(id, displayName, file, offset);
}

function start(id: string, name: string, file: File, sent: number) {
  uploads.set(id, { id, name, size: file.size, sent, isCancelled: false });
  void carry(id, file);
}

/** Breaks it off. What the node has of it goes with its image. */
function cancel(id: string) {
  const upload = uploads.get(id);
  if (!upload) return;
  upload.isCancelled = true;
  requests.get(id)?.abort();
}

const endings = new Map<string, Promise<void>>();

/** Breaks it off once `removal` has taken its image away. If that is refused, it goes on. */
export async function cancelWith(id: string, removal: Promise<unknown>): Promise<void> {
  const ending = removal.then(() => cancel(id));
  endings.set(id, ending);
  try {
    await ending;
  } finally {
    endings.delete(id);
  }
}

/** Those of one person do not go on for the next. */
watch(
  () => person.value?.id,
  () => [...uploads.keys()].forEach(cancel),
);

const place = (id: string) => `/v1/harvester/harvesterhci.io.virtualmachineimages/${id}`;

async function carry(id: string, file: File) {
  const upload = uploads.get(id);
  if (!upload) return;
  try {
    let pause = FIRST_PAUSE;
    let moved = Date.now();
    for (;;) {
      const from = upload.sent;
      const outcome = await send(upload, file);
      if (outcome === "done") return say(words.images.uploaded(upload.name));
      if (upload.sent > from) [pause, moved] = [FIRST_PAUSE, Date.now()];
      if (Date.now() - moved > PATIENCE) throw new Error(outcome.why);
      let seen: Seen;
      do {
        await new Promise((resolve) => setTimeout(resolve, pause));
        pause = Math.min(pause * 2, LONGEST_PAUSE);
        if (upload.isCancelled) return;
        seen = await learnsHowFar(upload);
        if (seen === "whole") return say(words.images.uploaded(upload.name));
      } while (seen === "unknown" && Date.now() - moved < PATIENCE);
    }
  } catch (why) {
    // What the node says while its image is being taken away may come of just that.
    await endings.get(id)?.catch(() => {});
    if (!upload.isCancelled) complain(words.images.uploadFailed(upload.name, whyOf(upload, why)));
  } finally {
    uploads.delete(id);
    requests.delete(id);
  }
}

const whyOf = (upload: Upload, why: unknown) => (why instanceof Refusal && why.status === 404 ? words.images.deletedMeanwhile(upload.name) : told(why));

/** Whether another answer is to be hoped for: the node is in trouble or in a hurry, or whoever uploads has to sign in again. */
const mayPass = (status: number) => status >= 500 || [401, 408, 429].includes(status);

type Seen = "part" | "whole" | "unknown";

/**
 * How much the node has; a refusal for good is thrown. What it does not say is not guessed: from the beginning would be all of it
 * again.
 */
async function learnsHowFar(upload: Upload): Promise<Seen> {
  try {
    upload.sent = (await get<{ offset: number }>(`${place(upload.id)}/upload`)).offset;
    return "part";
  } catch (why) {
    if (!(why instanceof Refusal) || mayPass(why.status)) return "unknown";
    // The line may have broken after the last byte, and before the answer.
    if (why.status === 409 && (await isWhole(upload))) return "whole";
    throw why;
  }
}

async function isWhole(upload: Upload): Promise<boolean> {
  return isImported(await get<Image>(addressOf(types.image, upload.id)));
}

/** A refusal is thrown: sending the same again would be refused again. */
function send(upload: Upload, file: File): Promise<"done" | { why: string }> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const from = upload.sent;
    const query = new URLSearchParams({ action: "upload", size: String(file.size) });
    if (from > 0) query.set("offset", String(from));
    request.open("POST", `${place(upload.id)}?${query}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("File-Size", String(file.size));
    request.setRequestHeader("X-API-CSRF", csrfWord());
    request.upload.onprogress = ({ loaded }) => {
      upload.sent = from + loaded;
    };
    request.onload = () => {
      if (request.status < 300) resolve("done");
      else if (request.status !== 401 && mayPass(request.status)) resolve({ why: refusalOf(request.status, request.responseText).message });
      else reject(refusalOf(request.status, request.responseText));
    };
    request.onerror = () => resolve({ why: words.errors.brokenOff(location.host) });
    request.onabort = () => resolve({ why: "" });
    requests.set(upload.id, request);
    request.send(from > 0 ? file.slice(from) : file);
  });
}
