// Files on their way: seen, left alone, cancelled, cut off, and gone on with.

import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { GUEST, holds, onDisk, PAGE, within } from "./house.mjs";

const MIB = 1 << 20;
const SIZE = 32 * MIB;
const SLOW = 5 * MIB;
const IMAGES = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";

export async function uploads(house, line) {
  const { page } = house;
  const directory = mkdtempSync(join(tmpdir(), "sheaf-upload-"));
  const file = join(directory, "disk.raw");
  writeFileSync(file, randomBytes(SIZE));
  const row = (name) => page.getByRole("row").filter({ hasText: name });
  const percent = async (name) => Number(await row(name).getByRole("progressbar").getAttribute("aria-valuenow"));
  const imageOf = async (name) => (await house.api("GET", IMAGES)).items.find((one) => one.spec.displayName === name);
  const offsets = [];
  page.on("request", (request) => {
    const address = new URL(request.url());
    if (request.method() === "POST" && address.searchParams.get("action") === "upload") offsets.push(Number(address.searchParams.get("offset") ?? 0));
  });
  const begin = async (name) => {
    await page.getByRole("button", { name: "Add an image" }).first().click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Upload a file").check();
    await dialog.locator("input[type=file]").setInputFiles(file);
    await dialog.getByLabel("Name").fill(name);
    await dialog.getByRole("button", { name: "Add an image" }).click();
    await row(name).getByRole("progressbar").waitFor();
  };
  try {
    await page.getByRole("link", { name: "Images" }).first().click();
    line.slow(SLOW);
    await begin("given-up");
    await within(PAGE, "an upload shows how far it is, how fast it goes and how long it will take", async () => {
      const said = await row("given-up").locator(".progress").innerText();
      return /\d+\s%\s+[\d.]+\s[KM]iB\/s, \d+s\sleft/.test(said) || said;
    });
    const before = await percent("given-up");
    await page.getByRole("link", { name: "Volumes" }).first().click();
    await page.getByRole("heading", { name: "Volumes" }).waitFor();
    await page.waitForTimeout(1200);
    await page.getByRole("link", { name: "Images" }).first().click();
    await within(PAGE, "it goes on while another page is looked at", async () => (await percent("given-up")) > before || (await percent("given-up")));
    const { metadata } = await imageOf("given-up");
    await within(PAGE, "the node has something of it", async () => onDisk(metadata.uid, metadata.name).length > 0);
    await page.getByRole("button", { name: "Cancel: given-up" }).click();
    await row("given-up").waitFor({ state: "detached" });
    await within(PAGE, "it can be cancelled, and nothing is left of it", async () => {
      const left = onDisk(metadata.uid, metadata.name);
      return (await imageOf("given-up")) === undefined && (left.length === 0 || left);
    });

    offsets.length = 0;
    await begin("cut-off");
    await within(PAGE, "another is under way", async () => (await percent("cut-off")) > 20);
    line.cut();
    await page.getByText("The connection is lost.").waitFor();
    line.slow(Infinity);
    line.mend();
    await row("cut-off").getByText("Ready").waitFor({ timeout: GUEST });
    holds("one that was cut off goes on by itself, from where it was", offsets[0] === 0 && offsets.length >= 2 && offsets.at(-1) > 0, offsets);

    line.slow(SLOW);
    await begin("left");
    await within(PAGE, "a third is under way", async () => (await percent("left")) > 20);
    let asked = "";
    page.once("dialog", (dialog) => {
      asked = dialog.type();
      void dialog.accept();
    });
    await page.reload();
    holds("whoever leaves the page is asked first", asked === "beforeunload", asked);
    line.slow(Infinity);
    await row("left").getByText("Only part of it is here").waitFor();
    offsets.length = 0;
    await page.getByRole("button", { name: "Actions of left" }).click();
    await page.getByRole("menuitem", { name: "Go on with the upload" }).click();
    await page.getByRole("dialog").locator("input[type=file]").setInputFiles(file);
    await page.getByRole("dialog").getByRole("button", { name: "Go on with the upload" }).click();
    await row("left").getByText("Ready").waitFor({ timeout: GUEST });
    holds("and one that was left says so, and is gone on with by giving the file again", offsets.length === 1 && offsets[0] > 0, offsets);
    const sums = await Promise.all(["cut-off", "left"].map(async (name) => (await imageOf(name)).status.size));
    holds("both are whole", sums.every((size) => size === SIZE), sums);
  } finally {
    line.slow(Infinity);
    rmSync(directory, { recursive: true });
  }
}
