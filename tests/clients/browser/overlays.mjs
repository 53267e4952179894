// What opens over pages of a furnished house: every dialog, menu and palette. Where it is, what is done there, and what it is.
// The stories that judge and that picture them share the list.

const button = (name, options = {}) => (page) => page.getByRole("button", { name, ...options }).first().click();
/** What is chosen from the menu of something. */
const chosen = (of, name) => async (page) => {
  await page.getByRole("button", { name: `Actions of ${of}` }).first().click();
  if (name) await page.getByRole("menuitem", { name, exact: true }).click();
};
const palette = async (page) => {
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Go to or do" }).fill("web");
};
const ticked = async (page) => {
  await page.getByLabel("Select all").check();
  await button("Delete")(page);
};
const uploading = async (page) => {
  await button("Add an image")(page);
  await page.getByRole("dialog").getByLabel("Upload a file").check();
};

export const OVERLAYS = [
  ["vms", palette, "the palette"],
  ["vms", chosen("db-1"), "an open menu"],
  ["vms/default/web-1", chosen("web-1"), "the menu of a machine that runs"],
  ["vms", button("Account"), "the menu of the account"],
  ["vms", ticked, "deleting many machines"],
  ["vms/default/web-1", chosen("web-1", "Delete"), "deleting a machine"],
  ["vms/default/web-1", chosen("web-1", "Clone"), "cloning one"],
  ["vms/default/web-1", chosen("web-1", "Make a template"), "making a template of one"],
  ["vms/default/web-1/disks", button("Attach a disk"), "attaching a disk"],
  ["vms/default/web-1/nics", button("Add a network card"), "adding a network card"],
  ["vms/default/web-1/snapshots", button("Take a snapshot"), "taking a snapshot"],
  ["vms/create", button("Save as a template"), "saving a new machine as a template"],
  ["images", button("Add an image"), "adding an image"],
  ["images", uploading, "uploading an image"],
  ["images", chosen("tiny-linux", "Delete"), "deleting an image"],
  ["volumes", button("Create a volume"), "creating a volume"],
  ["volumes", chosen("db-1-disk-0", "Export as an image"), "exporting a volume"],
  ["volumes", chosen("db-1-disk-0", "Grow"), "growing a volume"],
  ["volumes", chosen("db-1-disk-0", "Clone"), "cloning a volume"],
  ["volumes", chosen("db-1-disk-0", "Delete"), "deleting a volume"],
  ["snapshots", chosen("web-1-before-upgrade", "Restore as a new machine"), "restoring as a new machine"],
  ["snapshots", chosen("web-1-before-upgrade", "Delete"), "deleting a snapshot"],
  ["networks", button("Create a network"), "creating a network"],
  ["networks", button("lan"), "what a network is"],
  ["networks/cluster", button("Create a cluster network"), "creating a cluster network"],
  ["keys", button("Add a key"), "adding a key"],
  ["keys", button("Generate a key"), "generating a key"],
  ["templates/default/small", chosen("Version 1", "Show as YAML"), "a version of a template"],
  ["cloud-configs", button("Create a cloud config"), "creating a cloud config"],
  ["cloud-configs", button("with-agent"), "editing a cloud config"],
  ["settings", button(/^Edit: /), "changing a setting"],
  ["users", button("Create a user"), "creating a user"],
  ["users", chosen("jo", "Set a password"), "setting a password"],
  ["users", chosen("jo", "Lock out"), "locking out a user"],
  ["users", chosen("jo", "Delete"), "deleting a user"],
  ["users/admin", button("Give a role"), "giving a role"],
  ["access", button("Create a token"), "creating a token"],
  ["access", button("Sign out everywhere"), "signing out everywhere"],
  ["support", button("Make a support bundle"), "making a support bundle"],
  ["audit", button("virtualmachines"), "a line of the audit log"],
];
