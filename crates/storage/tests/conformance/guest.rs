//! Somebody who uses a volume as a machine would: a QEMU without a machine that keeps it open, writes to it and can be
//! switched to another layer while it does.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    os::fd::AsRawFd,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};
use sheaf_storage::{Format, Merge, OpenLayer};

pub struct Guest {
    qemu: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// What it told beside its answers, since it was last asked.
    told: String,
    /// The node that is written to.
    top: String,
    /// Open as long as QEMU may open them by our number for them.
    layers: Vec<OpenLayer>,
    /// The node of each layer.
    names: BTreeMap<u32, String>,
    /// It works on what others read.
    is_worker: bool,
    _socket: tempfile::TempDir,
}

impl Guest {
    /// Uses a volume until dropped.
    pub fn with(layers: Vec<OpenLayer>) -> Guest {
        Guest::start(layers, false)
    }

    fn start(layers: Vec<OpenLayer>, is_worker: bool) -> Guest {
        // What it reads and writes is told on its standard output, among the monitor's answers: line by line, so that it comes
        // before the answer.
        let mut qemu = Command::new("stdbuf")
            .args([
                "-oL",
                "qemu-system-x86_64",
                "-machine",
                "none",
                "-nodefaults",
                "-display",
                "none",
                "-qmp",
                "stdio",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (qemu.stdin.take().unwrap(), BufReader::new(qemu.stdout.take().unwrap()));
        let socket = tempfile::tempdir().unwrap();
        let address = json!({"type": "unix", "data": {"path": socket.path().join("nbd").to_str().unwrap()}});
        let mut guest = Guest {
            qemu,
            orders,
            answers,
            told: String::new(),
            top: String::new(),
            layers: Vec::new(),
            names: BTreeMap::new(),
            is_worker,
            _socket: socket,
        };
        guest.order("qmp_capabilities", json!({}));
        for layer in layers {
            let below = if guest.top.is_empty() { Value::Null } else { guest.top.clone().into() };
            guest.top = guest.add(layer, below);
        }
        guest.order("nbd-server-start", json!({"addr": address}));
        if !is_worker {
            guest.holds_on();
        }
        guest
    }

    /// Somebody has to hold it open in between, as a device of a machine would.
    fn holds_on(&mut self) {
        let is_writable = self.layers.last().is_some_and(|layer| !layer.read_only);
        let top = self.top.clone();
        self.order(
            "block-export-add",
            json!({"type": "nbd", "id": "device", "node-name": top, "writable": is_writable}),
        );
    }

    fn lets_go(&mut self) {
        self.order("block-export-del", json!({"id": "device"}));
        for _ in 0..1000 {
            if self.order("query-block-exports", json!({})).as_array().is_none_or(Vec::is_empty) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("it never lets go");
    }

    fn add(&mut self, layer: OpenLayer, below: Value) -> String {
        let name = format!("layer{}", layer.number);
        self.add_as(name, layer, below)
    }

    fn add_as(&mut self, name: String, layer: OpenLayer, below: Value) -> String {
        let path = format!("/proc/{}/fd/{}", std::process::id(), layer.file.as_raw_fd());
        let mut file = json!({"driver": "file", "node-name": format!("{name}-file"), "filename": path,
            "read-only": layer.read_only});
        if self.is_worker {
            file["locking"] = "off".into();
        }
        self.order("blockdev-add", file);
        let driver = match layer.format {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
        };
        let mut node = json!({"driver": driver, "node-name": name, "file": format!("{name}-file"),
            "read-only": layer.read_only});
        if layer.format == Format::Qcow2 {
            node["backing"] = below;
        }
        self.order("blockdev-add", node);
        self.names.insert(layer.number, name.clone());
        self.layers.push(layer);
        name
    }

    /// Writes to this layer from now on.
    pub fn switches_to(&mut self, layer: OpenLayer) {
        let next = self.add(layer, Value::Null);
        let actions = json!([{"type": "blockdev-snapshot", "data": {"node": self.top, "overlay": next}}]);
        self.order("transaction", json!({"actions": actions}));
        self.top = next;
    }

    pub fn writes(&mut self, pattern: u8, at: u64, bytes: u64) {
        let said = self.io(&format!("write -P {pattern} {at} {bytes}"));
        assert!(said.contains(&format!("wrote {bytes}/{bytes}")), "{said}");
        self.io("flush");
    }

    #[track_caller]
    pub fn reads(&mut self, pattern: u8, at: u64, bytes: u64) {
        let said = self.io(&format!("read -P {pattern} {at} {bytes}"));
        assert!(
            said.contains(&format!("read {bytes}/{bytes}")) && !said.contains("verification failed"),
            "not {pattern} at {at}: {said}"
        );
    }

    pub fn grows(&mut self, bytes: u64) {
        // Unlike a machine's device, this one does not let its disk grow under it.
        self.lets_go();
        let top = self.top.clone();
        self.order("block_resize", json!({"node-name": top, "size": bytes}));
        self.holds_on();
    }

    /// Does without the upper layer of two that became one: what lies on it is put on the lower one, opened anew.
    pub fn does_without(&mut self, merge: &Merge, layers: Vec<OpenLayer>) {
        let above =
            layers.iter().find(|layer| layer.number > merge.upper).expect("the top one is never merged");
        let above = self.names[&above.number].clone();
        let below = layers.iter().rev().find(|layer| layer.number < merge.lower);
        let below = below.map_or(Value::Null, |layer| self.names[&layer.number].clone().into());
        let lower = layers.into_iter().find(|layer| layer.number == merge.lower).unwrap();
        let before = self.names[&merge.lower].clone();
        let anew = self.add_as(format!("{before}anew"), lower, below);
        let node = json!({"driver": "qcow2", "node-name": above, "file": format!("{above}-file"),
            "read-only": above != self.top, "backing": anew});
        self.order("blockdev-reopen", json!({"options": [node]}));
        for gone in [self.names[&merge.upper].clone(), before] {
            self.order("blockdev-del", json!({"node-name": gone}));
            self.order("blockdev-del", json!({"node-name": format!("{gone}-file")}));
        }
    }

    fn io(&mut self, command: &str) -> String {
        let line = format!("qemu-io {} \"{command}\"", self.top);
        self.told.clear();
        let said = self.order("human-monitor-command", json!({"command-line": line}));
        format!("{}{}", self.told, said.as_str().unwrap_or_default())
    }

    #[track_caller]
    fn order(&mut self, command: &str, arguments: Value) -> Value {
        let mut patience = 250;
        loop {
            match self.answer_to(command, &arguments) {
                Ok(answer) => return answer,
                // A lock of this process's own is seen as held for the instant in which another test starts a
                // process, until that process is another program.
                Err(why)
                    if patience > 0 && why["desc"].as_str().is_some_and(|why| why.contains("lock byte")) =>
                {
                    patience -= 1;
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                Err(why) => panic!("{command} {arguments}: {why}"),
            }
        }
    }

    fn answer_to(&mut self, command: &str, arguments: &Value) -> Result<Value, Value> {
        writeln!(self.orders, "{}", json!({"execute": command, "arguments": arguments})).unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "QEMU ended over {command}");
            if !line.starts_with('{') {
                self.told += &line;
                continue;
            }
            let answer: Value = serde_json::from_str(&line).unwrap();
            if !answer["error"].is_null() {
                return Err(answer["error"].clone());
            }
            if !answer["return"].is_null() {
                return Ok(answer["return"].clone());
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        _ = self.qemu.kill();
        _ = self.qemu.wait();
    }
}

/// Puts the upper of two layers into the lower, whoever reads them meanwhile.
pub fn merge(layers: Vec<OpenLayer>, merge: &Merge) {
    let mut worker = Guest::start(layers, true);
    let (base, top) = (format!("layer{}", merge.lower), format!("layer{}", merge.upper));
    worker
        .order("block-commit", json!({"job-id": "merge", "device": top, "base-node": base, "top-node": top}));
    for _ in 0..2000 {
        let jobs = worker.order("query-jobs", json!({}));
        let Some(job) = jobs.as_array().and_then(|jobs| jobs.first()) else { return };
        assert!(job["error"].is_null(), "{job}");
        if job["status"] == "ready" {
            worker.order("job-complete", json!({"id": "merge"}));
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the merge never ends");
}
