//! `sheaf vm vnc`: a machine's screen in a viewer of this computer, or in a picture.
//!
//! A port of this computer leads to the screen, and the viewer that is found first is started on it. Where there is none the
//! port is told, and stays until it is broken off.

use std::{env, fs, path::PathBuf, process::Stdio};

use bytes::Bytes;
use clap::Args as ClapArgs;
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use tokio::{net::TcpListener, process::Command};

use super::{NameArgs, console::PLAIN, forward::pass_on};
use crate::asking::{
    Refusal, Session,
    out::note,
    resource::{MACHINES, machine_subresource},
};

/// A picture of the largest screen there is.
const MOST_BYTES: usize = 64 << 20;
/// Programs that show a screen, with what they are told: `{}` is the port.
const VIEWERS: [(&str, &str); 5] = [
    ("remote-viewer", "vnc://127.0.0.1:{}"),
    ("vncviewer", "127.0.0.1::{}"),
    ("gvncviewer", "127.0.0.1::{}"),
    ("vinagre", "vnc://127.0.0.1:{}"),
    ("krdc", "vnc://127.0.0.1:{}"),
];

#[derive(Debug, ClapArgs)]
pub struct VncArgs {
    #[command(flatten)]
    pub machine: NameArgs,
    /// Start no viewer; print the address that leads to the screen
    #[arg(long, conflicts_with = "screenshot")]
    pub proxy_only: bool,
    /// Port of this computer that leads to the screen [default: one that is free]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Write what is on the screen to this PNG file, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "port")]
    pub screenshot: Option<PathBuf>,
}

pub async fn run(session: &Session, args: &VncArgs) -> Result<(), Refusal> {
    let (namespace, name) = (&session.namespace, &args.machine.name);
    super::must_run(session, name, "look at the screen of").await?;
    let screen = machine_subresource("virtualmachineinstances", (namespace, name), "vnc");
    if let Some(file) = &args.screenshot {
        return picture(session, &screen, name, file).await;
    }
    let doing = format!("listen on 127.0.0.1:{}", args.port);
    let listener =
        TcpListener::bind(("127.0.0.1", args.port)).await.map_err(|why| Refusal::cannot(&doing, why))?;
    let port = listener.local_addr().map_err(|why| Refusal::cannot(&doing, why))?.port();
    let viewer = if args.proxy_only { None } else { viewer(port) };
    let Some(mut viewer) = viewer else {
        session.out.print(&format!("127.0.0.1:{port} leads to the screen of {name}; Ctrl-C ends it\n"))?;
        if !args.proxy_only {
            note(
                "No viewer was found (remote-viewer, vncviewer, ...): connect one of your own to that address.",
            );
        }
        loop {
            serve(session, &screen, name, &listener).await?;
        }
    };
    let mut started = viewer.spawn().map_err(|why| Refusal::cannot("start the viewer", why))?;
    tokio::select! {
        biased;
        ended = started.wait() => {
            ended.map_err(|why| Refusal::cannot("wait for the viewer", why))?;
            Ok(())
        }
        served = async {
            loop {
                serve(session, &screen, name, &listener).await?;
            }
        } => served,
    }
}

fn viewer(port: u16) -> Option<Command> {
    let path = env::var_os("PATH")?;
    let is_there =
        |program: &&(&str, &str)| env::split_paths(&path).any(|folder| folder.join(program.0).is_file());
    let (program, argument) = VIEWERS.iter().find(is_there)?;
    let mut command = Command::new(program);
    command.arg(argument.replace("{}", &port.to_string())).stdin(Stdio::null()).kill_on_drop(true);
    Some(command)
}

/// One viewer, from its connection to its end.
async fn serve(session: &Session, screen: &str, name: &str, listener: &TcpListener) -> Result<(), Refusal> {
    let (stream, _) = listener.accept().await.map_err(|why| Refusal::cannot("listen for a viewer", why))?;
    let doing = format!("look at the screen of the {}", MACHINES.about(&session.namespace, name));
    let opened = session.cluster.streams.open(screen, PLAIN, &session.world.chance).await;
    let socket = opened.map_err(|why| Refusal::cannot(&doing, why))?;
    // How a connection ends is between its two ends.
    _ = pass_on(socket, stream).await;
    Ok(())
}

async fn picture(session: &Session, screen: &str, name: &str, file: &PathBuf) -> Result<(), Refusal> {
    let doing = format!("take a picture of the screen of the {}", MACHINES.about(&session.namespace, name));
    let request = Request::get(format!("{screen}/screenshot")).body(Empty::<Bytes>::new());
    let request = request.map_err(|why| Refusal::cannot(&doing, why))?;
    let answer = session.cluster.streams.send(request).await.map_err(|why| Refusal::cannot(&doing, why))?;
    let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
    let bytes = body.map_err(|why| Refusal::cannot(&doing, why))?.to_bytes();
    fs::write(file, &bytes).map_err(|source| Refusal::Write { path: file.clone(), source })?;
    session.out.print(&format!("{} shows the screen of {name}\n", file.display()))
}
