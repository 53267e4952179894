// Who did what, on its page: true, live, filtered by its address, and for those alone who may.

import { holds, House, PAGE, within } from "./house.mjs";

const MAPS = "/api/v1/namespaces/default/configmaps";

export async function audit(house, line) {
  const { page } = house;
  const map = (name) => house.api("POST", MAPS, { apiVersion: "v1", kind: "ConfigMap", metadata: { name } });
  await map("audited-before");
  await page.getByRole("link", { name: "Audit log" }).click();
  const row = (name) => page.getByRole("row").filter({ hasText: name });
  await row("audited-before").first().waitFor();
  const cells = await row("audited-before").first().locator("td").allInnerTexts();
  holds("a line says who did what to what, and what came of it", ["create", "configmaps", "audited-before", "default", "201", "127.0.0.1"].every((word) => cells.some((cell) => cell.includes(word))), cells);
  const began = Date.now();
  await map("audited-live");
  await row("audited-live").first().waitFor();
  holds("what happens appears by itself", Date.now() - began < 1000 + PAGE / 10, Date.now() - began);
  console.log(`after ${Date.now() - began} ms`);

  line.cut();
  await page.getByText("The connection is lost.").waitFor();
  for (let number = 0; number < 5; number += 1) await map(`audited-meanwhile-${number}`);
  line.mend();
  await within(2 * PAGE, "what happened while the line was cut is there afterwards, once", async () => {
    const counts = await Promise.all([0, 1, 2, 3, 4].map((number) => row(`audited-meanwhile-${number}`).count()));
    return counts.every((count) => count === 1) || counts;
  });

  await page.getByLabel("What they were answered").selectOption("refused");
  await page.waitForURL(/answer=refused/);
  await within(PAGE, "filters are asked of the server", async () => (await row("audited-live").count()) === 0);
  await house.go("audit?user=nobody-of-that-name");
  await page.getByText("Nobody has done anything like that").waitFor();
  await house.go("audit?resource=configmaps&verb=create");
  await row("audited-live").first().waitFor();
  const configmaps = await page.locator("tbody tr[data-id]").count();
  holds("and an address leads to what somebody saw", configmaps >= 7 && (await row("virtualmachines").count()) === 0, configmaps);
  await row("audited-live").first().getByRole("button").click();
  await page.waitForURL(/line=/);
  const dialog = page.getByRole("dialog");
  holds("a line is shown whole", JSON.parse(await dialog.locator("pre").innerText()).objectRef.name === "audited-live");
  const link = page.url();
  await page.goto(link.replace("configmaps", "secrets"));
  await dialog.locator("pre").waitFor();
  holds("also where the list does not have it", (await dialog.locator("pre").innerText()).includes("audited-live"));

  // Somebody who may sign in and nothing else.
  const password = "somebody-ordinary-1234";
  await page.evaluate(async ([secret]) => {
    const word = /CSRF=([^;]+)/.exec(document.cookie)?.[1] ?? "";
    const made = await fetch("/v3/users", { method: "POST", headers: { "content-type": "application/json", "x-api-csrf": word }, body: JSON.stringify({ username: "jo", password: secret, enabled: true, mustChangePassword: false }) });
    if (!made.ok) throw new Error(await made.text());
  }, [password]);
  const other = await House.open({ url: house.url });
  await other.go();
  await other.types("jo", password);
  await other.page.getByRole("link", { name: "Events" }).waitFor();
  holds("who may not read it is not led to it", (await other.page.getByRole("link", { name: "Audit log" }).count()) === 0);
  await other.go("audit");
  await other.page.getByText("The audit log says what everybody did").waitFor();
  holds("and is told why when they go there", (await other.page.locator("tbody tr").count()) === 0);
  await other.close();
}
