//! What rules may ask of the house: names, formats, patterns.

use sheaf_cel::{Host, NamedFormat};

use crate::{
    names::{self, NameRule},
    schema::{format, pattern},
};

/// What every rule is compiled with.
pub(super) static HOST: Host = Host {
    formats: FORMATS,
    pattern: |text| pattern::compile(text, pattern::MAX_PROGRAM),
    foreign_pattern: |text| pattern::compile(text, FOREIGN_PROGRAM),
};

/// The largest program of a pattern out of data, in bytes: compiling takes time, for every object anew.
const FOREIGN_PROGRAM: usize = 256 * 1024;

/// The formats by the names rules call them, with the length of the pattern a check is charged for.
static FORMATS: &[NamedFormat] = &[
    NamedFormat {
        key: "dns1123Label",
        name: "DNS1123Label",
        pattern_size: 30,
        problems: names::dns_label_problems,
    },
    NamedFormat {
        key: "dns1123Subdomain",
        name: "DNS1123Subdomain",
        pattern_size: 60,
        problems: names::dns_subdomain_problems,
    },
    NamedFormat {
        key: "dns1035Label",
        name: "DNS1035Label",
        pattern_size: 30,
        problems: names::dns_1035_label_problems,
    },
    NamedFormat {
        key: "qualifiedName",
        name: "QualifiedName",
        pattern_size: 60,
        problems: names::qualified_name_problems,
    },
    NamedFormat {
        key: "dns1123LabelPrefix",
        name: "DNS1123LabelPrefix",
        pattern_size: 30,
        problems: |text| NameRule::DnsLabel.prefix_problems(text),
    },
    NamedFormat {
        key: "dns1123SubdomainPrefix",
        name: "DNS1123SubdomainPrefix",
        pattern_size: 60,
        problems: |text| NameRule::DnsSubdomain.prefix_problems(text),
    },
    NamedFormat {
        key: "dns1035LabelPrefix",
        name: "DNS1035LabelPrefix",
        pattern_size: 30,
        problems: |text| NameRule::Dns1035Label.prefix_problems(text),
    },
    NamedFormat {
        key: "labelValue",
        name: "LabelValue",
        pattern_size: 40,
        problems: names::label_value_problems,
    },
    NamedFormat {
        key: "uri",
        name: "URI",
        pattern_size: 1103,
        problems: |text| unless("uri", text, &format!("parse {text:?}: invalid URI for request")),
    },
    NamedFormat {
        key: "uuid",
        name: "uuid",
        pattern_size: 72,
        problems: |text| unless("uuid", text, "does not match the UUID format"),
    },
    NamedFormat {
        key: "byte",
        name: "byte",
        pattern_size: 84,
        problems: |text| unless("byte", text, "invalid base64"),
    },
    NamedFormat {
        key: "date",
        name: "date",
        pattern_size: 72,
        problems: |text| unless("date", text, "invalid date"),
    },
    NamedFormat {
        key: "datetime",
        name: "datetime",
        pattern_size: 72,
        problems: |text| unless("datetime", text, "invalid datetime"),
    },
];

fn unless(format: &str, text: &str, problem: &str) -> Vec<String> {
    if format::fits(format, text) { Vec::new() } else { vec![problem.to_owned()] }
}
