// Files on their way from this browser to a node. They go on while other pages are looked at, and after a line that broke: the node
// says how much of a file it has, and the rest is sent.

import { computed, reactive } from "vue";

import { csrfWord, get, post, refusalOf, told } from "@/api/http";
import { addressOf, types } from "@/api/objects";
import { complain, say } from "@/parts/toasts";
import { words } from "@/words";

export interface Upload {
  id: string;
  name: string;
  size: number;
  sent: number;
  /** Bytes in a second, of late. */
  rate: number;
  isCancelled: boolean;
}

/** How often it is tried in a row, without a byte getting through, before it is given up. */
const TRIES = 8;
/** Milliseconds. */
const PAUSE = 1500;

export const uploads = reactive(new Map<string, Upload>());
export const isUploading = computed(() => uploads.size > 0);
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
  const upload: Upload = { id: made.id, name: displayName, size: file.size, sent: 0, rate: 0, isCancelled: false };
  uploads.set(made.id, upload);
  void carry(made.id, file);
}

export function cancel(id: string) {
  const upload = uploads.get(id);
  if (!upload) return;
  upload.isCancelled = true;
  requests.get(id)?.abort();
}

const place = (id: string) => `/v1/harvester/harvesterhci.io.virtualmachineimages/${id}`;

async function carry(id: string, file: File) {
  const upload = uploads.get(id);
  if (!upload) return;
  try {
    for (let left = TRIES; ; left -= 1) {
      const from = upload.sent;
      const outcome = await send(upload, file);
      if (upload.isCancelled) break;
      if (outcome === "done") {
        say(words.images.uploaded(upload.name));
        break;
      }
      if (left <= 1) throw new Error(outcome.why);
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      upload.sent = await howFar(id);
      if (upload.sent > from) left = TRIES + 1;
    }
  } catch (why) {
    if (!upload.isCancelled) complain(words.images.uploadFailed(upload.name, told(why)));
  } finally {
    uploads.delete(id);
    requests.delete(id);
  }
}

async function howFar(id: string): Promise<number> {
  try {
    return (await get<{ offset: number }>(`${place(id)}/upload`)).offset;
  } catch {
    return 0;
  }
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
    let [lastTime, lastSent] = [performance.now(), from];
    request.upload.onprogress = ({ loaded }) => {
      upload.sent = from + loaded;
      const now = performance.now();
      if (now - lastTime < 500) return;
      const rate = ((upload.sent - lastSent) / (now - lastTime)) * 1000;
      upload.rate = upload.rate === 0 ? rate : upload.rate * 0.7 + rate * 0.3;
      [lastTime, lastSent] = [now, upload.sent];
    };
    request.onload = () => {
      if (request.status < 300) resolve("done");
      else if (request.status >= 500) resolve({ why: refusalOf(request.status, request.responseText).message });
      else reject(refusalOf(request.status, request.responseText));
    };
    request.onerror = () => resolve({ why: words.errors.brokenOff(location.host) });
    request.onabort = () => resolve({ why: "" });
    requests.set(upload.id, request);
    request.send(from > 0 ? file.slice(from) : file);
  });
}
