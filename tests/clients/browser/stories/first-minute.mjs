// From an empty cluster to a machine that was used, changed, brought back and deleted, by somebody who only has a browser.

import { FIRST_MINUTE, GUEST, holds, House, onDisk, PASSWORD, within } from "../house.mjs";

const VM = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/first";
const CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims";
const SECRETS = "/api/v1/namespaces/default/secrets";
/** A place on the guest's disk, in sectors, that nothing else is at. */
const SPOT = 2_000_000;

/** Compressed bytes from nothing to the door, and on to the first page behind it. */
const FIRST_LOAD = 400_000;

/** What the page has loaded from here on, as it came over the wire. */
async function counting(house) {
  const session = await house.context.newCDPSession(house.page);
  await session.send("Network.enable");
  let bytes = 0;
  session.on("Network.loadingFinished", ({ encodedDataLength }) => (bytes += encodedDataLength));
  return () => bytes;
}

export async function tell(disk) {
  const house = await House.open();
  const { page } = house;
  const loaded = await counting(house);
  await house.go();
  await house.types("admin", "not the password");
  await page.getByRole("alert").getByText("The user name or the password is wrong.").waitFor();
  holds("a wrong password is told, and nothing of the house is seen", (await page.getByRole("navigation").count()) === 0);
  const began = Date.now();
  await house.signsIn();
  await page.getByText("Nothing runs here yet.").waitFor();
  await page.waitForLoadState("networkidle");
  holds("the first load, with the page behind the door, is at most 400 kB", loaded() > 0 && loaded() < FIRST_LOAD, loaded());
  console.log(`it was ${(loaded() / 1000).toFixed(0)} kB`);
  holds("an empty cluster explains itself", (await page.getByRole("button", { name: "Add a node" }).count()) === 1);

  await page.getByRole("link", { name: "Add an image" }).click();
  await page.getByLabel("Upload a file").check();
  await page.setInputFiles("input[type=file]", disk);
  await page.getByRole("dialog").getByLabel("Name").fill("tiny");
  await page.getByRole("dialog").getByRole("button", { name: "Add an image" }).click();
  await page.getByRole("row").filter({ hasText: "tiny" }).getByText("Ready").waitFor({ timeout: GUEST });
  console.log("an image is uploaded");

  await page.getByRole("link", { name: "Virtual machines" }).first().click();
  await page.getByRole("link", { name: "Create a virtual machine" }).first().click();
  await page.getByLabel("Name", { exact: true }).fill("first");
  await page.getByLabel("CPUs", { exact: true }).fill("1");
  await page.getByLabel("Memory (GiB)").fill("0.25");
  // More than fits into the machine itself, so that there is a secret of it.
  await page.getByText("More options").click();
  await page.getByLabel("User data").fill(`#cloud-config\n# ${"of no use to this guest ".repeat(120)}\n`);
  await page.keyboard.press("Tab");
  const yaml = page.getByRole("textbox", { name: "YAML" });
  holds("what the form says stands beside it", (await yaml.inputValue()).includes("name: first"));
  await yaml.fill((await yaml.inputValue()).replace("name: first", "name: renamed"));
  holds("and the form follows what is typed there", (await page.getByLabel("Name", { exact: true }).inputValue()) === "renamed");
  await page.getByLabel("Name", { exact: true }).fill("first");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.waitForURL(/vms\/default\/first\/console/);
  await page.getByRole("status").filter({ hasText: "Connected" }).waitFor({ timeout: GUEST });
  const took = Date.now() - began;
  const runs = (await house.api("GET", VM)).status?.printableStatus;
  holds("from the door to a running machine with its screen open it is less than a minute", runs === "Running" && took < FIRST_MINUTE, [runs, took]);
  console.log(`it took ${(took / 1000).toFixed(1)} s`);
  await within(GUEST, "and pixels change on it", async () => {
    const canvas = page.locator(".screen canvas");
    const before = await canvas.evaluate((one) => one.toDataURL());
    await page.waitForTimeout(700);
    const colours = await canvas.evaluate((one) => {
      const { data } = one.getContext("2d").getImageData(0, 0, one.width, one.height);
      let lit = 0;
      for (let at = 0; at < data.length; at += 4) if (data[at] > 90) lit += 1;
      return lit;
    });
    return colours > 500 || before !== (await canvas.evaluate((one) => one.toDataURL()));
  });

  await page.getByRole("button", { name: "Serial console" }).click();
  await page.getByRole("status").filter({ hasText: "Connected" }).waitFor();
  const says = async (line, answer) => {
    await within(GUEST, `the guest answers ${line}`, async () => {
      await page.keyboard.type(`${line}\n`);
      await page.waitForTimeout(1500);
      return (await page.locator(".xterm-rows").innerText()).includes(answer) || (await page.locator(".xterm-accessibility").innerText()).includes(answer);
    });
  };
  await says("run echo $((40+2))-answers", "42-answers");
  // What comes back is in capitals, so that it is not what was typed that is read.
  const writes = (text) => says(`run echo ${text} | dd of=/dev/vda bs=512 seek=${SPOT} conv=notrunc,fsync 2>/dev/null && echo has ${text} | tr a-z A-Z`, `HAS ${text.toUpperCase()}`);
  await writes("first-words");

  await page.getByRole("button", { name: "Disks" }).click();
  const dialog = page.getByRole("dialog");
  const attach = async (name) => {
    await page.getByRole("button", { name: "Attach a disk" }).click();
    await dialog.getByLabel("Name").fill(name);
    await dialog.getByLabel("Disk size (GiB)").fill("1");
    await dialog.getByRole("button", { name: "Attach a disk" }).click();
    await page.getByRole("row").filter({ hasText: name }).getByText("Ready").waitFor({ timeout: GUEST });
  };
  await attach("more");
  console.log("a disk is plugged in while it runs");
  await page.getByRole("row").filter({ hasText: "first-more" }).getByRole("button", { name: "Detach" }).click();
  await page.getByRole("row").filter({ hasText: "first-more" }).waitFor({ state: "detached", timeout: GUEST });
  console.log("and taken out again");

  await page.getByRole("button", { name: "Snapshots" }).click();
  await page.getByRole("button", { name: "Take a snapshot" }).click();
  await dialog.getByLabel("Name of the snapshot").fill("before");
  await dialog.getByRole("button", { name: "Take a snapshot" }).click();
  const snapshot = page.getByRole("row").filter({ hasText: "before" });
  await snapshot.waitFor();
  await within(GUEST, "a snapshot is taken", async () => (await snapshot.getByRole("progressbar").count()) === 0 && (await snapshot.count()) === 1);
  await page.getByText("Stop the machine to bring it back").waitFor();
  console.log("which a running machine is not brought back to, and it is said why");

  await page.getByRole("button", { name: "Console", exact: true }).click();
  await page.getByRole("button", { name: "Serial console" }).click();
  await page.getByRole("status").filter({ hasText: "Connected" }).waitFor();
  await writes("other-words");
  await page.getByRole("button", { name: "Snapshots" }).click();

  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await page.getByText("Stopped", { exact: true }).first().waitFor({ timeout: GUEST });
  console.log("the machine is stopped");
  await snapshot.getByRole("button", { name: "Restore a snapshot" }).click();
  await dialog.getByRole("button", { name: "Restore a snapshot" }).click();
  await within(GUEST, "and brought back to the snapshot", async () => {
    const restores = await house.api("GET", "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores");
    return restores.items.length === 1 && restores.items[0].status?.complete === true;
  });

  // It is as it was then, and then it ran.
  await page.getByText("Running", { exact: true }).first().waitFor({ timeout: GUEST });
  await page.getByRole("button", { name: "Console", exact: true }).click();
  await page.getByRole("button", { name: "Serial console" }).click();
  await page.getByRole("status").filter({ hasText: "Connected" }).waitFor({ timeout: GUEST });
  await says(`run echo now $(dd if=/dev/vda bs=512 skip=${SPOT} count=1 2>/dev/null | head -c 11) | tr a-z A-Z`, "NOW FIRST-WORDS");
  console.log("with what was on its disk then");

  await page.getByRole("button", { name: "Disks" }).click();
  await attach("kept");
  const vm = await house.api("GET", VM);
  const instance = await house.api("GET", VM.replace("virtualmachines", "virtualmachineinstances"));
  const claims = Object.fromEntries(vm.spec.template.spec.volumes.filter((one) => one.persistentVolumeClaim).map((one) => [one.name, one.persistentVolumeClaim.claimName]));
  const names = async (claim) => {
    const { metadata, spec } = await house.api("GET", `${CLAIMS}/${claim}`);
    return [metadata.uid, spec.volumeName];
  };
  const [root] = Object.keys(claims).filter((disk) => disk !== "kept" && !claims[disk].includes("kept"));
  const [kept] = Object.keys(claims).filter((disk) => disk !== root);
  const [ofRoot, ofKept] = [await names(claims[root]), await names(claims[kept])];
  const ofMachine = [vm.metadata.uid, instance.metadata.uid];
  const secretsOf = async () => (await house.api("GET", SECRETS)).items.filter((one) => one.metadata.ownerReferences?.some((owner) => owner.uid === vm.metadata.uid));
  holds("a machine has files, a secret and disks on its node", onDisk(...ofRoot).length > 0 && onDisk(...ofKept).length > 0 && onDisk(...ofMachine).length > 0 && (await secretsOf()).length === 1, [onDisk(...ofRoot), onDisk(...ofKept), onDisk(...ofMachine)]);

  await page.getByRole("button", { name: "Actions of first" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await dialog.getByText("Disks that are not ticked are kept").waitFor();
  holds("whoever deletes it is asked about every disk, and none is ticked", (await dialog.getByRole("checkbox").count()) === 2 && (await dialog.getByRole("checkbox", { checked: true }).count()) === 0);
  await dialog.getByRole("checkbox", { name: claims[root] }).check();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await within(GUEST, "it is deleted with its secret, its files and the disk that was ticked", async () => {
    const left = { vm: await house.api("GET", VM), claim: await house.api("GET", `${CLAIMS}/${claims[root]}`), secrets: await secretsOf(), files: onDisk(...ofRoot, ...ofMachine) };
    return (left.vm === undefined && left.claim === undefined && left.secrets.length === 0 && left.files.length === 0) || Object.keys(left).map((key) => [key, left[key]?.length ?? left[key]?.metadata.name]);
  });
  holds("and the other disk is kept", (await house.api("GET", `${CLAIMS}/${claims[kept]}`))?.status?.phase === "Bound" && onDisk(...ofKept).length > 0);
  await house.go("volumes");
  await page.getByRole("row").filter({ hasText: claims[kept] }).waitFor();
  await house.go("vms");
  await page.getByText("There is no virtual machine here yet.").waitFor();

  await page.getByRole("button", { name: "Account" }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.getByLabel("User name").waitFor();
  await house.go("vms");
  await page.getByLabel("User name").waitFor();
  console.log("who has signed out sees nothing any more");
  await house.types("admin", PASSWORD);
  await page.waitForURL(/dashboard\/vms/);
  console.log("and comes back to where they wanted to go");
  await house.close();
}
