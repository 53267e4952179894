// Stories told in a real browser: node main.mjs STORY [ARGUMENTS]. Each prints what it found to hold, and fails at what does not.

const [story, ...rest] = process.argv.slice(2);
const { tell } = await import(`./stories/${story}.mjs`);
try {
  await tell(...rest);
} catch (why) {
  const { lookBack } = await import("./house.mjs");
  await lookBack().catch(() => {});
  console.error(why);
  process.exit(1);
}
process.exit(0);
