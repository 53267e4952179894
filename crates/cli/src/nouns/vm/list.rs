//! `sheaf vm list`.

use serde_json::{Value, json};

use super::standing;
use crate::asking::{
    Refusal, Session,
    facts::text,
    listing::{self, ListArgs},
    resource::{INSTANCES, MACHINES},
    table::{self, Cell, Column, column, wide},
    watching::{self, Watched},
};

/// Where a machine's row has what its instance knows.
const INSTANCE: &str = "instance";

/// A machine, with its instance under `instance` where it has one.
const COLUMNS: &[Column] = &[
    column("NAMESPACE", |vm, _| text(vm, "/metadata/namespace").into()),
    column("NAME", |vm, _| text(vm, "/metadata/name").into()),
    column("STATUS", |vm, _| Cell::toned(standing::status(vm), standing::tone(standing::status(vm)))),
    column("CPUS", |vm, _| standing::cpus(vm).to_string().into()),
    column("MEMORY", |vm, _| standing::memory_in_words(vm).into()),
    column("ADDRESS", |vm, _| {
        standing::addresses(&vm["instance"]).into_iter().next().unwrap_or_default().into()
    }),
    column("HOST", |vm, _| text(vm, "/instance/status/nodeName").into()),
    column("AGE", |vm, moment| {
        sheaf_resources::age::since(text(vm, "/metadata/creationTimestamp"), moment.now).into()
    }),
    wide("RUN STRATEGY", |vm, _| text(vm, "/spec/runStrategy").into()),
    wide("GUEST", |vm, _| text(vm, "/instance/status/guestOSInfo/prettyName").into()),
    wide("DESCRIPTION", |vm, _| {
        vm["metadata"]["annotations"][standing::DESCRIPTION].as_str().unwrap_or_default().into()
    }),
];

pub async fn run(session: &Session, args: &ListArgs) -> Result<(), Refusal> {
    let namespace = if args.all_namespaces { "" } else { session.namespace.as_str() };
    let columns = if args.all_namespaces { COLUMNS } else { &COLUMNS[1..] };
    if args.watch {
        let selector = args.selector.as_deref();
        let joined = Some((&INSTANCES, INSTANCE));
        let watched = Watched { resource: &MACHINES, namespace, selector, columns, joined };
        return watching::forever(session, &watched).await;
    }
    let query = listing::query(args.selector.as_deref());
    let mut machines = session.list(&MACHINES, namespace, &query).await?;
    session.is_a_place(&MACHINES, namespace, machines.is_empty()).await?;
    if let Some(text) = session.format.many(&MACHINES, &machines)? {
        return session.out.print(&text);
    }
    if machines.is_empty() {
        let place = if args.all_namespaces { "".to_owned() } else { format!(" in namespace {namespace}") };
        let image = "`sheaf vm create NAME --image IMAGE` makes one";
        return session.out.print(&format!("there is no virtual machine{place}; {image}\n"));
    }
    // Who may see machines and not their instances sees the rest.
    let instances = match session.list(&INSTANCES, namespace, "").await {
        Err(Refusal::Forbidden { .. }) => Vec::new(),
        instances => instances?,
    };
    join(&mut machines, &instances);
    session.out.print(&table::of(columns, &machines, &session.moment(), session.format, session.out))
}

fn join(machines: &mut [Value], instances: &[Value]) {
    let id = |object: &Value| {
        (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned())
    };
    let by_id: std::collections::BTreeMap<_, _> = instances.iter().map(|one| (id(one), one)).collect();
    for vm in machines {
        if let Some(instance) = by_id.get(&id(vm)) {
            vm[INSTANCE] = json!({"status": instance["status"]});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asking::{Format, out::Out, table::Moment};

    #[test]
    fn a_machine_stands_in_a_line_with_what_its_instance_knows() {
        let mut machines = vec![
            json!({"metadata": {"name": "web", "namespace": "default", "creationTimestamp": "1970-01-01T00:00:00Z"},
                "spec": {"template": {"spec": {"domain": {"cpu": {"cores": 2}, "memory": {"guest": "512Mi"}}}}},
                "status": {"printableStatus": "Running"}}),
            json!({"metadata": {"name": "off", "namespace": "default", "creationTimestamp": "1970-01-01T00:00:30Z"},
                "status": {"printableStatus": "Stopped"}}),
        ];
        let instances = [json!({"metadata": {"name": "web", "namespace": "default"},
            "status": {"nodeName": "n1", "interfaces": [{"ipAddress": "10.52.0.9"}]}})];
        join(&mut machines, &instances);
        let text = table::of(&COLUMNS[1..], &machines, &Moment { now: 60 }, Format::Table, Out::default());
        assert_eq!(
            text,
            "NAME   STATUS    CPUS   MEMORY    ADDRESS     HOST   AGE\n\
             web    Running   2      512 MiB   10.52.0.9   n1     60s\n\
             off    Stopped   1                                   30s\n"
        );
    }
}
