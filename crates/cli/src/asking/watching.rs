//! `--watch`: what there is, and then every change as it comes.
//!
//! Lines are added and never taken back, so it can be read by a program, too. What is gone is told once.

use futures::StreamExt;
use kube::runtime::watcher;
use serde_json::Value;
use std::time::Duration;
use tokio::time::sleep;

use super::{Format, Refusal, Resource, Session, format::without_owners, table};

const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Until it is broken off.
pub async fn forever(
    session: &Session,
    resource: &Resource,
    namespace: &str,
    selector: Option<&str>,
    columns: &[table::Column<Value>],
) -> Result<(), Refusal> {
    let namespace = if resource.is_namespaced { namespace } else { "" };
    let objects = sheaf_client::api::objects(&session.cluster.objects, &resource.for_kube(), namespace);
    let mut config = watcher::Config::default();
    if let Some(selector) = selector {
        config = config.labels(selector);
    }
    let mut changes = std::pin::pin!(watcher::watcher(objects, config));
    let mut begun: Vec<Value> = Vec::new();
    let mut is_begun = false;
    let mut head = Head::default();
    loop {
        let value = |object| {
            let mut value = serde_json::to_value(object).map(without_owners).unwrap_or_default();
            value["apiVersion"] = resource.api_version().into();
            value["kind"] = resource.kind.as_ref().into();
            value
        };
        match changes.next().await {
            Some(Ok(watcher::Event::Init)) => begun.clear(),
            Some(Ok(watcher::Event::InitApply(object))) => begun.push(value(object)),
            Some(Ok(watcher::Event::InitDone)) => {
                // After a line that broke everything is listed again, and was printed before.
                if !is_begun {
                    head.print(session, resource, columns, &begun, false)?;
                }
                is_begun = true;
            }
            Some(Ok(watcher::Event::Apply(object))) => {
                head.print(session, resource, columns, &[value(object)], false)?;
            }
            Some(Ok(watcher::Event::Delete(object))) => {
                head.print(session, resource, columns, &[value(object)], true)?;
            }
            Some(Err(watcher::Error::InitialListFailed(why) | watcher::Error::WatchStartFailed(why)))
                if matches!(why, kube::Error::Api(_)) =>
            {
                return Err(
                    session.refused(why, &format!("watch {}", super::session::plural(&resource.called)))
                );
            }
            Some(Err(_)) | None => sleep(TRY_AGAIN).await,
        }
    }
}

/// The head of the table, printed once, and how wide its columns are.
#[derive(Default)]
struct Head {
    is_printed: bool,
    widths: Vec<usize>,
}

impl Head {
    fn print(
        &mut self,
        session: &Session,
        resource: &Resource,
        columns: &[table::Column<Value>],
        objects: &[Value],
        is_gone: bool,
    ) -> Result<(), Refusal> {
        if !session.format.is_for_people() {
            for object in objects {
                let text = match session.format {
                    Format::Json => format!("{object}\n"),
                    Format::Yaml => format!("---\n{}", super::format::yaml(object)?),
                    Format::Name | Format::Table | Format::Wide => resource.name_of(object) + "\n",
                };
                session.out.print(&text)?;
            }
            return Ok(());
        }
        let moment = session.moment();
        let text =
            table::more_of(columns, objects, &moment, session.format, session.out.colours, &mut self.widths);
        let skipped = usize::from(self.is_printed);
        self.is_printed = true;
        for line in text.lines().skip(skipped) {
            let gone = if is_gone { "   (deleted)" } else { "" };
            session.out.print(&format!("{line}{gone}\n"))?;
        }
        Ok(())
    }
}
