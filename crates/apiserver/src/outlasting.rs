//! What goes on after the request that it came with: watches, consoles, screens, forwarded ports. They end when whoever opened them
//! would not be let in any more with what they came with, because they signed out, changed their password, were locked out or
//! deleted.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::sleep;

use crate::{ApiServer, identity::User};

/// How often that is looked at: it is a look at objects in memory.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl ApiServer {
    /// Resolves when they are out. `None` for credentials of which nothing but their own end is to come.
    pub(crate) fn until_out(&self, user: &Arc<User>) -> Option<impl Future<Output = ()> + Send + 'static> {
        if user.token_name().is_empty() {
            return None;
        }
        let (server, user) = (self.clone(), user.clone());
        Some(async move {
            loop {
                sleep(LOOK_EVERY).await;
                if !server.authenticator.is_still(&user) {
                    return;
                }
            }
        })
    }
}
