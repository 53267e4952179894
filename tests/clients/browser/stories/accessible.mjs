// Every page, in light and in dark and on a phone: what people who cannot see or point find there, by axe's rules.

import { createRequire } from "node:module";

import { holds, House } from "../house.mjs";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const wanted = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];

export async function tell(...pages) {
  for (const [scheme, width] of [["light", 1280], ["dark", 1280], ["light", 390]]) {
    const house = await House.open({ scheme, width });
    await house.go("sign-in");
    await judge(house, "sign-in", scheme, width);
    await house.signsIn();
    process.env.SHEAF_PASSWORD_IS_CHOSEN = "1";
    for (const page of pages) {
      await house.go(page);
      await house.page.getByRole("heading", { level: 1 }).first().waitFor();
      await house.page.waitForTimeout(300);
      await judge(house, page || "overview", scheme, width);
    }
    await house.close();
  }
}

async function judge(house, name, scheme, width) {
  const { page } = house;
  // Put in past the policy of the page, which would forbid it: the judge is not part of what is judged.
  const session = await page.context().newCDPSession(page);
  const source = (await import("node:fs")).readFileSync(axe, "utf8");
  await session.send("Runtime.evaluate", { expression: source });
  const found = await page.evaluate((tags) => globalThis.axe.run(document, { runOnly: tags }), wanted);
  const wrong = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).slice(0, 4).join(", ")}`);
  holds(`${name} is accessible, ${scheme}, ${width} wide`, wrong.length === 0, wrong);
  const overflows = await page.evaluate(() => {
    const main = document.querySelector("main");
    return document.documentElement.scrollWidth > innerWidth + 1 || (main !== null && main.scrollWidth > main.clientWidth + 1);
  });
  holds(`and nothing of ${name} lies beyond the edge`, !overflows);
}
