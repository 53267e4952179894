//! What is shown of samples: by name, in form, and over time.

use std::time::Duration;

use serde_json::Value;
use sheaf_hypervisor::qmp::numbers::{DiskNumbers, MemoryNumbers};
use tokio::time::Instant;

use super::{process::ProcessNumbers, sample::Traffic, *};

const COUNTERS: &[&str] = &[
    "kubevirt_vmi_cpu_system_usage_seconds_total",
    "kubevirt_vmi_cpu_usage_seconds_total",
    "kubevirt_vmi_cpu_user_usage_seconds_total",
    "kubevirt_vmi_memory_pgmajfault_total",
    "kubevirt_vmi_memory_pgminfault_total",
    "kubevirt_vmi_network_receive_bytes_total",
    "kubevirt_vmi_network_receive_errors_total",
    "kubevirt_vmi_network_receive_packets_dropped_total",
    "kubevirt_vmi_network_receive_packets_total",
    "kubevirt_vmi_network_traffic_bytes_total",
    "kubevirt_vmi_network_transmit_bytes_total",
    "kubevirt_vmi_network_transmit_errors_total",
    "kubevirt_vmi_network_transmit_packets_dropped_total",
    "kubevirt_vmi_network_transmit_packets_total",
    "kubevirt_vmi_storage_flush_requests_total",
    "kubevirt_vmi_storage_flush_times_seconds_total",
    "kubevirt_vmi_storage_iops_read_total",
    "kubevirt_vmi_storage_iops_write_total",
    "kubevirt_vmi_storage_read_times_seconds_total",
    "kubevirt_vmi_storage_read_traffic_bytes_total",
    "kubevirt_vmi_storage_write_times_seconds_total",
    "kubevirt_vmi_storage_write_traffic_bytes_total",
    "kubevirt_vmi_vcpu_delay_seconds_total",
    "kubevirt_vmi_vcpu_seconds_total",
];
const GAUGES: &[&str] = &[
    "kubevirt_vmi_memory_actual_balloon_bytes",
    "kubevirt_vmi_memory_available_bytes",
    "kubevirt_vmi_memory_cached_bytes",
    "kubevirt_vmi_memory_domain_bytes",
    "kubevirt_vmi_memory_resident_bytes",
    "kubevirt_vmi_memory_swap_in_traffic_bytes",
    "kubevirt_vmi_memory_swap_out_traffic_bytes",
    "kubevirt_vmi_memory_unused_bytes",
    "kubevirt_vmi_memory_usable_bytes",
    "kubevirt_vmi_memory_used_bytes",
];

type Labels = BTreeMap<String, String>;

/// A page in Prometheus' text form, read as strictly as its description allows: every family has one heading and
/// stands together, no line is there twice, no name or value is odd.
#[derive(Debug, Default)]
struct Page {
    types: BTreeMap<String, String>,
    lines: BTreeMap<(String, Labels), f64>,
}

impl Page {
    fn read(text: &str) -> Page {
        assert!(text.is_empty() || text.ends_with('\n'), "the last line is cut off");
        let mut page = Page::default();
        let (mut helped, mut family) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').unwrap();
                assert!(is_name(name) && !words.is_empty(), "{line}");
                helped = name.to_owned();
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, helped, "a type without its help before it");
                assert!(["counter", "gauge"].contains(&kind), "{line}");
                let twice = page.types.insert(name.to_owned(), kind.to_owned());
                assert_eq!(twice, None, "{name} begins twice");
                family = name.to_owned();
            } else {
                let (name, labels, value) = sample(line);
                assert_eq!(name, family, "a line outside its family");
                let twice = page.lines.insert((name, labels), value);
                assert_eq!(twice, None, "twice: {line}");
            }
        }
        page
    }

    #[track_caller]
    fn value(&self, name: &str, more: &[(&str, &str)]) -> f64 {
        let basic = [("node", "n1"), ("namespace", "default"), ("name", "vm")];
        let labels = basic.iter().chain(more).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let found = self.lines.get(&(name.to_owned(), labels));
        *found.unwrap_or_else(|| panic!("no {name} {more:?} in {self:#?}"))
    }
}

fn is_name(text: &str) -> bool {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn sample(line: &str) -> (String, Labels, f64) {
    let (name, rest) = line.split_once('{').unwrap();
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    let mut rest = rest;
    loop {
        let (label, quoted) = rest.split_once("=\"").unwrap();
        assert!(is_name(label), "{line}");
        let (mut value, mut chars) = (String::new(), quoted.char_indices());
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('"' | '\\') => c,
                    other => panic!("\\{other} in {line}"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert_eq!(labels.insert(label.to_owned(), value), None, "{line}");
        rest = &quoted[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    let value = rest.strip_prefix("} ").unwrap();
    assert!(value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'), "{line}");
    (name.to_owned(), labels, value.parse().unwrap())
}

fn id(text: &str) -> MachineId {
    text.parse().unwrap()
}

fn owner(name: &str) -> Owner {
    Owner { namespace: "default".into(), name: name.into() }
}

fn full(at: Instant) -> Sample {
    let said = MemoryNumbers {
        stat_total_memory: Some(1000),
        stat_free_memory: Some(300),
        stat_available_memory: Some(600),
        stat_disk_caches: Some(200),
        stat_swap_in: Some(5),
        stat_swap_out: Some(6),
        stat_major_faults: Some(7),
        stat_minor_faults: Some(8),
    };
    let disk = DiskNumbers {
        device: "disk-root".into(),
        read_bytes: 10,
        written_bytes: 20,
        reads: 1,
        writes: 2,
        flushes: 3,
        read_nanos: 1_500_000_000,
        write_nanos: 5,
        flush_nanos: 7_000_000,
    };
    let received = Traffic { bytes: 70, packets: 7, errors: 1, dropped: 2 };
    let transmitted = Traffic { bytes: 90, packets: 9, errors: 3, dropped: 4 };
    Sample {
        at,
        process: ProcessNumbers {
            user_nanos: 2_000_000_000,
            system_nanos: 250_000_000,
            resident_bytes: 4096,
            started_ticks: 1,
        },
        cpus: (0..2).map(|index| CpuNumbers { index, run_nanos: 1_000_000_001, delay_nanos: 9 }).collect(),
        memory_bytes: 2048,
        guest: Some(GuestMemory { actual_bytes: 1024, said }),
        disks: Some(vec![disk]),
        nics: vec![NicNumbers { name: "default".into(), received, transmitted }],
    }
}

fn page(metrics: &MachineMetrics) -> Page {
    let mut text = String::new();
    metrics.write(&mut text);
    Page::read(&text)
}

#[tokio::test(start_paused = true)]
async fn names_types_and_labels_are_kubevirts() {
    let metrics = MachineMetrics::new("n1");
    metrics.enter(&id("a"), owner("vm"), 0, full(Instant::now()));
    let page = page(&metrics);
    let of_type = |wanted: &str| -> Vec<&str> {
        page.types.iter().filter(|(_, kind)| *kind == wanted).map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(of_type("counter"), COUNTERS);
    assert_eq!(of_type("gauge"), GAUGES);
    assert_eq!(page.value("kubevirt_vmi_cpu_usage_seconds_total", &[]), 2.25);
    assert_eq!(
        page.value("kubevirt_vmi_vcpu_seconds_total", &[("id", "1"), ("state", "running")]),
        1.000_000_001
    );
    assert_eq!(page.value("kubevirt_vmi_vcpu_delay_seconds_total", &[("id", "0")]), 9e-9);
    assert_eq!(page.value("kubevirt_vmi_memory_domain_bytes", &[]), 2048.0);
    assert_eq!(page.value("kubevirt_vmi_memory_available_bytes", &[]), 1000.0);
    assert_eq!(page.value("kubevirt_vmi_memory_used_bytes", &[]), 400.0);
    let root = &[("drive", "root")];
    assert_eq!(page.value("kubevirt_vmi_storage_read_times_seconds_total", root), 1.5);
    assert_eq!(page.value("kubevirt_vmi_storage_iops_write_total", root), 2.0);
    assert_eq!(page.value("kubevirt_vmi_network_receive_bytes_total", &[("interface", "default")]), 70.0);
    let sent = &[("interface", "default"), ("type", "tx")];
    assert_eq!(page.value("kubevirt_vmi_network_traffic_bytes_total", sent), 90.0);
}

#[tokio::test(start_paused = true)]
async fn a_name_full_of_quotes_spoils_no_page() {
    let metrics = MachineMetrics::new("n\\\"1\n");
    metrics.enter(&id("a"), owner("v\"}m\\"), 0, full(Instant::now()));
    let page = page(&metrics);
    assert!(page.lines.keys().all(|(_, labels)| labels["node"] == "n\\\"1\n" && labels["name"] == "v\"}m\\"));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_has_no_line() {
    let metrics = MachineMetrics::new("n1");
    let silent = Sample { guest: None, disks: None, cpus: vec![], nics: vec![], ..full(Instant::now()) };
    metrics.enter(&id("a"), owner("vm"), 0, silent);
    let page = page(&metrics);
    assert!(page.types.keys().all(|name| name.contains("_cpu_")
        || name.ends_with("domain_bytes")
        || name.ends_with("resident_bytes")));
    assert_eq!(page.lines.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn of_an_instance_and_its_successor_the_younger_is_shown() {
    let metrics = MachineMetrics::new("n1");
    let mut younger = full(Instant::now());
    younger.process.started_ticks = 2;
    younger.memory_bytes = 7;
    metrics.enter(&id("a"), owner("vm"), 0, younger);
    metrics.enter(&id("b"), owner("vm"), 0, full(Instant::now()));
    assert_eq!(page(&metrics).value("kubevirt_vmi_memory_domain_bytes", &[]), 7.0);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_stops_leaves_the_page_and_keeps_its_history_until_it_is_forgotten() {
    let metrics = MachineMetrics::new("n1");
    metrics.enter(&id("a"), owner("vm"), 0, full(Instant::now()));
    metrics.stopped(&id("a"));
    assert!(page(&metrics).lines.is_empty());
    assert!(metrics.history(&id("a")).is_some());
    metrics.keep_only(&BTreeSet::from([id("b")]));
    assert_eq!(metrics.history(&id("a")), None);
}

fn history(metrics: &MachineMetrics) -> Value {
    serde_json::from_slice(&metrics.history(&id("a")).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn history_holds_rates_over_the_time_that_really_passed() {
    let metrics = MachineMetrics::new("n1");
    let first = full(Instant::now());
    let mut second = first.clone();
    second.at += Duration::from_secs(20);
    second.process.user_nanos += 30_000_000_000;
    second.disks.as_mut().unwrap()[0].read_bytes += 2000;
    second.disks.as_mut().unwrap()[0].writes += 40;
    second.nics[0].received.bytes += 100;
    second.guest.as_mut().unwrap().said.stat_total_memory = Some(1 << 20);
    metrics.enter(&id("a"), owner("vm"), 100, first);
    assert_eq!(history(&metrics)["points"].as_array().unwrap().len(), 0, "one sample makes no rate");
    metrics.enter(&id("a"), owner("vm"), 120, second);
    let told = history(&metrics);
    assert_eq!(told["interval"], 10);
    let wanted = serde_json::json!({
        "t": 120, "cpu": 1.5, "memoryBytes": 4096, "memoryUsedBytes": (1 << 20) - 1024,
        "diskReadBps": 100.0, "diskWriteBps": 0.0, "diskReadIops": 0.0, "diskWriteIops": 2.0,
        "netRxBps": 5.0, "netTxBps": 0.0,
    });
    assert_eq!(told["points"][0], wanted);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_started_again_makes_no_rate_below_or_above_all_reason() {
    let metrics = MachineMetrics::new("n1");
    let first = full(Instant::now());
    let mut again = first.clone();
    again.at += Duration::from_secs(10);
    again.process.started_ticks = 99;
    again.process.user_nanos = 5;
    let mut silent = again.clone();
    silent.at += Duration::from_secs(10);
    silent.disks = None;
    for (at, sample) in [(0, first), (10, again), (20, silent)] {
        metrics.enter(&id("a"), owner("vm"), at, sample);
    }
    let told = history(&metrics);
    assert_eq!(told["points"][0]["cpu"], Value::Null);
    assert_eq!(told["points"][0]["netRxBps"], Value::Null);
    assert_eq!(told["points"][1]["cpu"], 0.0);
    assert_eq!(told["points"][1]["diskReadBps"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_hour_is_kept_and_no_more() {
    let metrics = MachineMetrics::new("n1");
    let mut sample = full(Instant::now());
    for number in 0..=500 {
        sample.at += Duration::from_secs(INTERVAL_SECS);
        metrics.enter(&id("a"), owner("vm"), number * INTERVAL_SECS, sample.clone());
    }
    let told = history(&metrics);
    let points = told["points"].as_array().unwrap();
    assert_eq!(points.len(), 360);
    assert_eq!((&points[0]["t"], &points[359]["t"]), (&Value::from(1410), &Value::from(5000)));
}
