// An image that the node fetches itself: how far it is, how fast it comes, how long it will take, cancelled, and why it does not come.

import http from "node:http";

import { holds, onDisk, PAGE, within } from "./house.mjs";

const MIB = 1 << 20;
/** It would take longer than anybody looks at it, and ends all the same. */
const SIZE = 96 * MIB;
const RATE = 4 * MIB;
const EVERY = 100;
const IMAGES = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";

/** A raw disk that comes slowly, and how many are reading it. */
async function source() {
  const reading = new Set();
  const server = http.createServer((request, response) => {
    response.writeHead(200, { "content-type": "application/octet-stream", "content-length": SIZE });
    if (request.method === "HEAD") return response.end();
    reading.add(response);
    const piece = Buffer.alloc((RATE * EVERY) / 1000, 1);
    let left = SIZE;
    const timer = setInterval(() => {
      const now = piece.subarray(0, Math.min(left, piece.length));
      left -= now.length;
      if (left > 0) response.write(now);
      else response.end(now);
    }, EVERY);
    response.on("error", () => {});
    response.on("close", () => {
      clearInterval(timer);
      reading.delete(response);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/disk.raw`, reading, close: () => server.close() };
}

export async function downloads(house) {
  const { page } = house;
  const from = await source();
  const row = page.getByRole("row").filter({ hasText: "fetched" });
  const imageOf = async () => (await house.api("GET", IMAGES)).items.find((one) => one.spec.displayName === "fetched");
  try {
    await page.getByRole("link", { name: "Images" }).first().click();
    await page.getByRole("button", { name: "Add an image" }).first().click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox", { name: "Address" }).fill(from.url);
    // Whoever goes on is given a name after the file's, and may take another.
    await page.keyboard.press("Tab");
    await within(PAGE, "an image is called as its file unless it is called otherwise", async () => (await dialog.getByLabel("Name").inputValue()) === "disk.raw");
    await dialog.getByLabel("Name").fill("fetched");
    await dialog.getByRole("button", { name: "Add an image" }).click();
    await row.getByRole("progressbar", { name: "fetched" }).waitFor();
    let said = "";
    await within(PAGE, "a download shows how far it is, how fast it comes and how long it will take", async () => {
      said = await row.locator(".progress").innerText();
      return /\d+\s%\s+[\d.]+\s[KM]iB\/s, \d+s\sleft/.test(said) || said;
    });
    const [, number, unit] = /([\d.]+)\s([KM])iB\/s/.exec(said);
    const rate = Number(number) * (unit === "M" ? MIB : 1 << 10);
    holds("and it is as fast as that, or slower", rate > RATE / 20 && rate < RATE * 2, said);
    holds("its size is not told as that of a file that is there", (await row.locator("td").allInnerTexts()).filter((text) => text === "–").length === 2, await row.locator("td").allInnerTexts());
    const { metadata } = await imageOf();
    holds("the node has something of it", onDisk(metadata.uid, metadata.name).length > 0);
    await page.getByRole("button", { name: "Cancel: fetched" }).click();
    await row.waitFor({ state: "detached" });
    await page.getByText("The image fetched is cancelled.").waitFor();
    await within(PAGE, "it can be cancelled: nothing is left of it, and nobody fetches it", async () => {
      const left = onDisk(metadata.uid, metadata.name);
      return (await imageOf()) === undefined && ((left.length === 0 && from.reading.size === 0) || [left, from.reading.size]);
    });
  } finally {
    from.close();
  }
  await refused(house);
}

/** From where nobody answers: one that is given up at once, and one that is tried again. */
async function refused(house) {
  const { page } = house;
  const why = "Connection refused";
  const add = (displayName, retry) =>
    house.api("POST", IMAGES, { apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineImage", metadata: { name: displayName }, spec: { displayName, sourceType: "download", url: "http://127.0.0.1:1/x.raw", retry } });
  await add("given-away", 0);
  await add("hoped-for", 3);
  const row = (name) => page.getByRole("row").filter({ hasText: name });
  await row("given-away").getByText("Failed").waitFor();
  const text = row("given-away").getByText(why);
  await text.waitFor();
  holds("an image that does not come says why, and not that it was tried often enough", ((await text.getAttribute("title")) ?? "").includes(why) && !(await row("given-away").innerText()).includes("limit"), await row("given-away").innerText());
  await page.setViewportSize({ width: 390, height: 800 });
  await within(PAGE, "on a phone, where nothing is pointed at, it is read whole", () => text.evaluate((one) => one.scrollHeight <= one.clientHeight + 1 && one.scrollWidth <= one.clientWidth));
  await page.setViewportSize({ width: 1280, height: 800 });
  await row("hoped-for").getByText(/Trying again: .*Connection refused/).waitFor();
  holds("one that is tried again says so, and not how far it was", !/\d\s%/.test(await row("hoped-for").innerText()), await row("hoped-for").innerText());
  for (const name of ["given-away", "hoped-for"]) await house.api("DELETE", `${IMAGES}/${name}`);
}
