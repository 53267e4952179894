// A page of another origin, in the browser of somebody who is signed in: it can make the browser ask, and gets nothing for it.

import { holds, PAGE, within } from "./house.mjs";
import { wire } from "./wire.mjs";

const MAPS = "/api/v1/namespaces/default/configmaps";
const map = (name) => ({ apiVersion: "v1", kind: "ConfigMap", metadata: { name, namespace: "default" } });

/** Sends JSON as a form does, which no browser asks anybody about first. */
function posts([address, text]) {
  const form = document.createElement("form");
  Object.assign(form, { method: "post", enctype: "text/plain", action: address });
  const field = document.createElement("input");
  // What stands between name and value becomes part of a text.
  Object.assign(field, { type: "hidden", name: text.replace(/}$/, ',"more":"'), value: '"}' });
  form.append(field);
  document.body.append(form);
  form.submit();
}

const sends = ([address, text]) => fetch(address, { method: "POST", mode: "no-cors", credentials: "include", headers: { "content-type": "text/plain" }, body: text }).catch(() => {});
/** Whether the page was told anything. */
const reads = ([address, method]) =>
  fetch(address, { method, credentials: "include" }).then(
    () => true,
    () => false,
  );
const frames = (address) => {
  const frame = document.createElement("iframe");
  frame.src = address;
  document.body.replaceChildren(frame);
};

export async function strangers(house) {
  // Another port of the same host is another origin and the same site: browsers send the cookie along, so only the server can refuse.
  const elsewhere = await wire(house.url);
  const stranger = await house.context.newPage();
  stranger.setDefaultTimeout(PAGE);
  await stranger.goto(`${elsewhere.url}/version`);
  await house.api("POST", MAPS, map("kept"));

  const attempts = [
    ["make something", MAPS, map("planted")],
    ["make somebody", "/v3/users", { username: "planted", password: "somebody-planted-1234", enabled: true }],
    ["sign them out", "/v3/tokens?action=logout", {}],
    ["sign them in as somebody else", "/v3-public/localProviders/local?action=login", { username: "admin", password: "whatever it is", responseType: "cookie" }],
  ];
  for (const [what, path, body] of attempts) {
    for (const way of [sends, posts]) {
      const address = `${house.url}${path}`;
      const [answer] = await Promise.all([stranger.waitForResponse((one) => one.url() === address), stranger.evaluate(way, [address, JSON.stringify(body)]).catch(() => {})]);
      // Who sends no session is anonymous, and is refused as that: with another number and other words.
      const text = way === posts ? await answer.text() : "another origin";
      holds(`a foreign page cannot ${what} by ${way === posts ? "a form" : "a request"}, though the session goes along`, answer.status() === 422 && text.includes("another origin"), [answer.status(), text]);
      if (way === posts) await stranger.goto(`${elsewhere.url}/version`);
    }
  }
  holds("nor read anything", !(await stranger.evaluate(reads, [`${house.url}${MAPS}`, "GET"])));
  holds("nor delete anything", !(await stranger.evaluate(reads, [`${house.url}${MAPS}/kept`, "DELETE"])));
  const users = (await house.api("GET", "/apis/management.cattle.io/v3/users")).items.map((one) => one.username);
  holds("nothing of it has happened", (await house.api("GET", `${MAPS}/planted`)) === undefined && (await house.api("GET", `${MAPS}/kept`)) !== undefined && !users.includes("planted"), users);
  await house.go("images");
  await house.page.getByRole("heading", { name: "Images" }).waitFor();
  console.log("and whoever was signed in still is");

  const framed = () => stranger.frames().find((one) => one !== stranger.mainFrame())?.url() ?? "";
  await stranger.evaluate(frames, `${house.url}/version`);
  await within(PAGE, "a foreign page can have frames", async () => framed() === `${house.url}/version` || framed());
  await stranger.evaluate(frames, `${house.url}/dashboard/`);
  await within(PAGE, "and the console in none", async () => framed().startsWith("chrome-error:") || framed());

  const refusals = [];
  stranger.on("websocket", (socket) => socket.on("socketerror", (why) => refusals.push(why)));
  const opened = (path, protocol) =>
    stranger.evaluate(
      ([address, spoken]) =>
        new Promise((resolve) => {
          const socket = new WebSocket(address, spoken);
          socket.onopen = () => resolve(true);
          socket.onerror = () => resolve(false);
        }),
      [`${house.url.replace("https", "wss")}${path}`, protocol],
    );
  holds("a foreign page opens no console", !(await opened("/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/any/console", ["plain.kubevirt.io"])));
  holds("nor a subscription", !(await opened("/v1/subscribe", [])));
  holds("as something that comes from another origin, and not for another reason", refusals.length === 2 && refusals.every((why) => why.includes("422")), refusals);
  await stranger.close();
}
