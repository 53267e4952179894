// What every story needs: a real browser that trusts this one server, somebody signed in, and the API to compare with.

import { createHash, X509Certificate } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import https from "node:https";
import { dirname } from "node:path";
import tls from "node:tls";

import { chromium } from "playwright-core";

export const PASSWORD = "correct-horse-battery-staple-9";
/** Guests boot under emulation, beside other tests. */
export const GUEST = Number(process.env.SHEAF_GUEST_PATIENCE ?? 240_000);
export const PAGE = 30_000;
/** From the door to a machine with its console open. */
export const FIRST_MINUTE = Number(process.env.SHEAF_FIRST_MINUTE ?? 60_000);

export const MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";

/** Says what is promised, and ends the story when it is not kept. */
export function holds(promise, kept, seen = "") {
  if (!kept) throw new Error(`not so: ${promise}${seen === "" ? "" : `; seen: ${JSON.stringify(seen)}`}`);
  console.log(promise);
}

export async function within(time, promise, look) {
  const end = Date.now() + time;
  let seen;
  for (;;) {
    try {
      seen = await look();
      if (seen === true) return console.log(promise);
    } catch (why) {
      seen = why.message;
    }
    if (Date.now() > end) return holds(promise, false, seen);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Milliseconds from the answer to a change until the page shows it: `look` is asked there at every frame. */
export async function seenAfter(page, change, look, about) {
  const seen = page.waitForFunction(look, about, { polling: "raf" });
  await change();
  const answered = Date.now();
  await seen;
  return Math.max(0, Date.now() - answered);
}

export const median = (all) => [...all].sort((one, other) => one - other)[Math.floor(all.length / 2)];

/** The kubeconfig of the administrator: where the server is, and how it is known to be it. */
export function place() {
  const text = readFileSync(process.env.KUBECONFIG, "utf8");
  const value = (key) => new RegExp(`${key}: "?([^"\\s]+)"?`).exec(text)?.[1] ?? "";
  const decoded = (key) => Buffer.from(value(key), "base64");
  return {
    url: value("server"),
    ca: decoded("certificate-authority-data"),
    cert: decoded("client-certificate-data"),
    key: decoded("client-key-data"),
    token: value("token"),
  };
}

/** What is in the node's directory, beside its store and its logs, and has one of these in its name. */
export function onDisk(...names) {
  const found = readdirSync(dirname(process.env.KUBECONFIG), { recursive: true });
  return found.filter((path) => names.some((name) => path.includes(name)));
}

/** The digest of the server's public key, once its certificate was proved by the cluster's own authority. */
function keyOf(url, ca) {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = tls.connect({ host: hostname, port: Number(port), ca, ALPNProtocols: ["http/1.1"] }, () => {
      const certificate = new X509Certificate(socket.getPeerCertificate(true).raw);
      const key = certificate.publicKey.export({ type: "spki", format: "der" });
      socket.end();
      resolve(createHash("sha256").update(key).digest("base64"));
    });
    socket.on("error", reject);
  });
}

/** Asks the API itself, as its administrator. */
export function api(server) {
  const credentials = server.token ? { headers: { authorization: `Bearer ${server.token}` } } : { cert: server.cert, key: server.key };
  const agent = new https.Agent({ keepAlive: true, maxSockets: 16, ca: server.ca, cert: credentials.cert, key: credentials.key });
  return (method, path, body, type = "application/json") =>
    new Promise((resolve, reject) => {
      const headers = { ...credentials.headers, ...(body === undefined ? {} : { "content-type": type }) };
      const request = https.request(server.url + path, { method, agent, headers }, (answer) => {
        let text = "";
        answer.setEncoding("utf8");
        answer.on("data", (piece) => (text += piece));
        answer.on("end", () => {
          if (answer.statusCode >= 300 && answer.statusCode !== 404) reject(new Error(`${method} ${path}: ${answer.statusCode} ${text}`));
          else resolve(answer.statusCode === 404 ? undefined : JSON.parse(text || "null"));
        });
      });
      request.on("error", reject);
      request.end(body === undefined ? undefined : JSON.stringify(body));
    });
}

let opened;

/** What was on the screen when a story failed. SHEAF_SHOTS names a directory for a picture of it. */
export async function lookBack() {
  if (!opened) return;
  const { page } = opened;
  if (process.env.SHEAF_SHOTS) await page.screenshot({ path: `${process.env.SHEAF_SHOTS}/failure.png` });
  console.log(`at ${page.url()}:\n${(await page.locator("body").innerText()).slice(0, 4000)}`);
  console.log(`the browser complains: ${JSON.stringify(opened.complaints)}`);
}

export class House {
  static async open({ url, scheme = "light", width = 1280, height = 800 } = {}) {
    const house = new House();
    house.server = place();
    house.url = url ?? house.server.url;
    house.api = api(house.server);
    const pin = await keyOf(house.server.url, house.server.ca);
    house.browser = await chromium.launch({
      executablePath: process.env.SHEAF_CHROMIUM ?? "/usr/bin/chromium",
      // As root there is no sandbox to be had; nothing but our own pages is opened.
      args: [`--ignore-certificate-errors-spki-list=${pin}`, "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
    });
    house.complaints = [];
    house.context = await house.browser.newContext({ viewport: { width, height }, colorScheme: scheme });
    house.page = await house.newPage();
    opened = house;
    return house;
  }

  async newPage() {
    const page = await this.context.newPage();
    page.setDefaultTimeout(PAGE);
    page.on("pageerror", (why) => this.complaints.push(`uncaught: ${why.message}`));
    page.on("console", (message) => {
      // A request that is refused is in the browser's log whatever the page makes of it.
      if (message.type() === "error" && !/Failed to load resource|WebSocket|Failed when connecting|net::ERR/.test(message.text())) this.complaints.push(message.text());
    });
    return page;
  }

  go(path = "") {
    return this.page.goto(`${this.url}/dashboard/${path}`);
  }

  async types(name, password, page = this.page) {
    await page.getByLabel("User name").fill(name);
    await page.getByLabel("Password", { exact: true }).fill(password);
    await page.getByRole("button", { name: "Sign in" }).click();
  }

  /** The first time with the password that was generated, and from then on with the one that was chosen then. */
  async signsIn(path = "") {
    await this.go(path);
    await this.types("admin", process.env.SHEAF_PASSWORD_IS_CHOSEN ? PASSWORD : process.env.SHEAF_FIRST_PASSWORD);
    await this.page.waitForURL(/\/dashboard\/(?!sign-in)/);
    if (new URL(this.page.url()).pathname === "/dashboard/password") await this.choosesPassword();
  }

  /** Right from the door, where the generated one was typed a moment ago: it is not asked for again. */
  async choosesPassword() {
    const current = this.page.getByLabel("Current password");
    const fresh = this.page.getByLabel("New password", { exact: true });
    await fresh.waitFor();
    holds("who signed in with the generated password is asked only for the new one", (await current.inputValue()) === process.env.SHEAF_FIRST_PASSWORD);
    await within(PAGE, "which the page waits for", async () => fresh.evaluate((one) => one === document.activeElement));
    await fresh.fill(PASSWORD);
    await this.page.getByLabel("New password again").fill(PASSWORD);
    await this.page.getByRole("button", { name: "Set password" }).click();
    await this.page.waitForURL(/\/dashboard\/(?!password)/);
  }

  async close() {
    await this.browser.close();
    holds("nothing went wrong in the browser", this.complaints.length === 0, this.complaints);
  }
}
