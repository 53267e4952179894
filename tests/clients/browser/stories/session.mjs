// A session that ends while it is used, a server that goes away and comes back, and pages of strangers.

import { createInterface } from "node:readline";

import { GUEST, holds, House, PASSWORD, within } from "../house.mjs";
import { wire } from "../wire.mjs";

export async function tell() {
  const house = await House.open();
  const { page } = house;
  await house.signsIn("images");

  const cookies = await house.context.cookies();
  const session = cookies.find((cookie) => cookie.name === "R_SESS");
  holds("the session is in a cookie that no script reads and no other site sends", session.httpOnly && session.secure && session.sameSite !== "None", session);
  const policy = (await (await house.go("images")).allHeaders())["content-security-policy"];
  holds("no page may be put into a frame, and no script comes from elsewhere", policy.includes("frame-ancestors 'none'") && policy.includes("script-src 'self';"), policy);

  // Another port of the same host is another origin and the same site: browsers send the cookie along, so only the server can refuse.
  const elsewhere = await wire(house.url);
  const stranger = await house.newPage();
  await stranger.goto(`${elsewhere.url}/version`);
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

  console.log("ready");
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  await lines.next();
  await within(GUEST, "after a restart of the server the page is connected again, and still signed in", async () => {
    const lost = await page.getByText("The connection is lost.").count();
    return lost === 0 && (await page.getByRole("heading", { name: "Images" }).count()) === 1;
  });

  await house.go("audit");
  await page.getByText("the audit log is switched off on this server").waitFor();
  console.log("an audit log that is switched off says so");
  await house.go("images");
  const tokens = (await house.api("GET", "/apis/management.cattle.io/v3/tokens")).items;
  for (const token of tokens) await house.api("DELETE", `/apis/management.cattle.io/v3/tokens/${token.metadata.name}`);
  // The page may notice by itself before anybody clicks; then there is nothing to click any more.
  await page.getByRole("link", { name: "Virtual machines" }).first().click({ timeout: 5000 }).catch(() => {});
  await page.getByText("Your session has ended.").waitFor({ timeout: GUEST });
  console.log("a session that was ended elsewhere leads to the door, and says why");
  await house.types("admin", PASSWORD);
  await page.waitForURL(/dashboard\/(vms|images)/);
  console.log("and signing in leads back");
  await house.close();
}
