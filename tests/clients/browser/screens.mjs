// A machine's screen and serial console: what the buttons beside the screen do, in the guest and on the wire.

import { GUEST, holds, PAGE, within } from "./house.mjs";

const [CONTROL, ALT, DELETE] = [0xffe3, 0xffe9, 0xffff];

/** The keys that a page sent to a screen, as RFB has them: number and whether it went down. */
function keysIn(frame) {
  if (typeof frame === "string") return [];
  if (frame.length === 8 && frame[0] === 4) return [[frame.readUInt32BE(4), frame[1] === 1]];
  // QEMU's own message, which has the place of the key on the keyboard, too.
  if (frame.length === 12 && frame[0] === 255 && frame[1] === 0) return [[frame.readUInt32BE(4), frame.readUInt16BE(2) === 1]];
  return [];
}

/** Types a line into a serial console until the guest, which may still boot, answers it. What comes back must not be what was typed. */
export async function answers(serial, line, answer, promise = `the guest answers ${line}`) {
  await within(GUEST, promise, async () => {
    await types(serial, line);
    await hears(serial, answer, 2000);
    return true;
  });
}

async function types(serial, line) {
  await serial.bringToFront();
  await serial.locator(".xterm-helper-textarea").focus();
  await serial.keyboard.type(`${line}\n`);
}

function hears(serial, answer, timeout = GUEST) {
  return serial.waitForFunction((text) => document.querySelector(".xterm-rows")?.innerText.replaceAll("\u00a0", " ").includes(text), answer, { timeout });
}

export const connected = (page, timeout = GUEST) => page.getByRole("status").filter({ hasText: /^Connected$/ }).waitFor({ timeout });

/** Of the machine `web`, from the list on. Answers the window with its serial console; the guest boots again when it is left. */
export async function screens(house, asked) {
  const { page } = house;
  const keys = [];
  page.on("websocket", (socket) => {
    if (socket.url().endsWith("/vnc")) socket.on("framesent", ({ payload }) => keys.push(...keysIn(payload)));
  });
  await page.getByRole("link", { name: "web", exact: true }).click();
  await page.getByRole("heading", { name: "web" }).waitFor();
  holds("the page of a machine brings its graphs, and no console", asked.some((one) => /MachinePage/.test(one)) && !asked.some((one) => /SerialConsole|VncScreen/.test(one)));
  await page.getByRole("button", { name: "Console", exact: true }).click();
  await connected(page);
  holds("a console comes when it is looked at, and the other does not", asked.some((one) => /VncScreen/.test(one)) && !asked.some((one) => /SerialConsole/.test(one)));
  await page.getByRole("button", { name: "Serial console" }).click();
  await connected(page);
  const [serial] = await Promise.all([page.waitForEvent("popup"), page.getByRole("button", { name: "Open in a window" }).click()]);
  await page.getByRole("button", { name: "Screen", exact: true }).click();
  await connected(serial);
  await answers(serial, "run echo $((40+2))-answers", "42-answers", "a serial console in a window of its own answers");
  // Something for the graphs: memory, the disk and the network are used once.
  await types(serial, "run dd if=/dev/zero of=/run/fill bs=1M count=48; ip link set eth0 up; udhcpc -i eth0 -n -q -t 2; dd if=/dev/zero of=/dev/vda bs=1M seek=300 count=64 conv=notrunc,fsync; echo $((3*7))-busy");

  await page.bringToFront();
  await connected(page);
  const canvas = page.locator(".screen canvas");
  const sizes = () => canvas.evaluate((one) => ({ drawn: Math.round(one.getBoundingClientRect().width), own: one.width, place: Math.round(one.closest(".place").clientWidth) }));
  await within(PAGE, "the screen fits the window", async () => {
    const { drawn, own, place } = await sizes();
    return (own > 0 && drawn !== own && drawn <= place) || [drawn, own, place];
  });
  const scale = page.getByRole("button", { name: "Fit to the window" });
  await scale.click();
  await within(PAGE, "or is as large as it is", async () => {
    const { drawn, own } = await sizes();
    return drawn === own || [drawn, own];
  });
  await scale.click();
  await within(PAGE, "and fits again", async () => {
    const { drawn, own, place } = await sizes();
    return (drawn !== own && drawn <= place) || [drawn, own, place];
  });
  await page.getByRole("button", { name: "Full screen" }).click();
  await within(PAGE, "it fills the whole screen", () => page.evaluate(() => document.fullscreenElement?.querySelector("canvas") instanceof HTMLCanvasElement));
  await page.evaluate(() => document.exitFullscreen());
  await page.waitForFunction(() => document.fullscreenElement === null);

  // Whoever is at the machine's own keyboard is read by the guest, which tells it on the serial line.
  await hears(serial, "21-busy");
  await types(serial, "run exec 3</dev/tty1; echo $((5*7))-listens; echo read-$(head -n 1 <&3)");
  await hears(serial, "35-listens");
  await page.bringToFront();
  keys.length = 0;
  await page.getByRole("button", { name: "Paste" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Paste").fill("Sheaf: 4 + 2 = 6!\n");
  await dialog.getByRole("button", { name: "Send" }).click();
  await hears(serial, "read-Sheaf: 4 + 2 = 6!");
  console.log("what is pasted is typed on the machine's keyboard, capitals and all");
  holds("as keys, one by one", keys.filter(([, down]) => down).length >= 18 && keys.some(([key]) => key === 0xff0d), keys.length);

  await connected(page);
  keys.length = 0;
  await page.getByRole("button", { name: "Ctrl-Alt-Del" }).click();
  const wanted = [[CONTROL, true], [ALT, true], [DELETE, true], [DELETE, false], [ALT, false], [CONTROL, false]];
  await within(PAGE, "Ctrl-Alt-Del are three keys", async () => JSON.stringify(keys) === JSON.stringify(wanted) || keys);
  return serial;
}

/** What it had in its memory is gone. */
export const bootedAgain = (serial) => answers(serial, "run echo $(ls /run | grep -c fill)-files", "0-files", "the guest obeyed Ctrl-Alt-Del: it booted again");
