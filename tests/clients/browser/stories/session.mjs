// Sessions that end, by somebody's hand or by time, a server that goes away and comes back, and pages of strangers.

import { createInterface } from "node:readline";

import { GUEST, holds, House, PAGE, PASSWORD, within } from "../house.mjs";
import { strangers } from "../strangers.mjs";

/** Milliseconds. The console asks for no particular time; the server gives sixteen hours then, and less to who asks for less. */
const SHORT = 5000;

export async function tell() {
  const house = await House.open();
  const { page } = house;
  await house.signsIn("images");

  const cookies = await house.context.cookies();
  const session = cookies.find((cookie) => cookie.name === "R_SESS");
  holds("the session is in a cookie that no script reads and no other site sends", session.httpOnly && session.secure && session.sameSite !== "None", session);
  const policy = (await (await house.go("images")).allHeaders())["content-security-policy"];
  holds("no page may be put into a frame, and no script comes from elsewhere", policy.includes("frame-ancestors 'none'") && policy.includes("script-src 'self';"), policy);

  await strangers(house);
  await endsByItself(house);

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

/** A session that nobody ends: its time is up. */
async function endsByItself(house) {
  const context = await house.browser.newContext();
  const page = await context.newPage();
  await page.route(/action=login/, (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ttl: SHORT }) }));
  await page.goto(`${house.url}/dashboard/volumes?q=mine`);
  await house.types("admin", PASSWORD, page);
  await page.waitForURL(/volumes\?q=mine/);
  await page.getByRole("heading", { name: "Volumes" }).waitFor();
  const began = Date.now();
  await page.getByText("Your session has ended.").waitFor({ timeout: PAGE });
  const lasted = Date.now() - began;
  // Its end is kept in whole seconds, and it began before its page was there.
  holds("a session whose time is up is told by itself, and not before", lasted > SHORT - 2500, lasted);
  console.log(`after ${lasted} ms of ${SHORT}`);
  holds("and nothing of what was seen is seen any more", (await page.getByRole("heading", { name: "Volumes" }).count()) === 0);
  await page.unroute(/action=login/);
  await house.types("admin", PASSWORD, page);
  await page.waitForURL(/volumes\?q=mine/);
  await page.getByRole("heading", { name: "Volumes" }).waitFor();
  console.log("who signs in then is where they were");
  await context.close();
}
