//! Keys and passwords that are brought into a guest from Secrets.

use crate::wire::wire_type;

wire_type! {
    /// One of a set of SSH keys and a set of passwords.
    AccessCredential = "io.kubevirt.v1.AccessCredential" {
        /// Public keys that may sign in.
        ssh_public_key: Option<SshPublicKey>,
        /// Passwords, one per user.
        user_password: Option<UserPassword>,
    }
}

wire_type! {
    /// Public keys that may sign in.
    SshPublicKey = "io.kubevirt.v1.SSHPublicKeyAccessCredential" {
        /// Where the keys are.
        source: CredentialSource,
        /// How they get into the guest.
        propagation_method: SshPublicKeyPropagation,
    }
}

wire_type! {
    /// Passwords, one per user.
    UserPassword = "io.kubevirt.v1.UserPasswordAccessCredential" {
        /// Where the passwords are: one key of the Secret per user.
        source: CredentialSource,
        /// How they get into the guest.
        propagation_method: UserPasswordPropagation,
    }
}

wire_type! {
    /// Where a credential is.
    CredentialSource = "io.kubevirt.v1.AccessCredentialSource" {
        /// A Secret in the machine's namespace.
        secret: Option<CredentialSecret>,
    }
}

wire_type! {
    /// A Secret in the machine's namespace.
    CredentialSecret = "io.kubevirt.v1.AccessCredentialSecretSource" {
        /// The Secret's name.
        secret_name: String,
    }
}

wire_type! {
    /// One way into the guest.
    SshPublicKeyPropagation = "io.kubevirt.v1.SSHPublicKeyAccessCredentialPropagationMethod" {
        /// With the NoCloud seed, at boot.
        no_cloud: Option<AtBoot>,
        /// With the ConfigDrive seed, at boot.
        config_drive: Option<AtBoot>,
        /// Through the guest agent, while it runs.
        qemu_guest_agent: Option<ForUsers>,
    }
}

wire_type! {
    /// One way into the guest.
    UserPasswordPropagation = "io.kubevirt.v1.UserPasswordAccessCredentialPropagationMethod" {
        /// Through the guest agent, while it runs.
        qemu_guest_agent: Option<ForAllNamed>,
    }
}

wire_type! {
    /// At boot; there is nothing to say about it.
    AtBoot = "io.kubevirt.v1.SSHPublicKeyAccessCredentialPropagationAtBoot" {}
}

wire_type! {
    /// Through the guest agent, for these users.
    ForUsers = "io.kubevirt.v1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation" {
        /// Users of the guest whose keys are kept in step.
        users: Vec<String>,
    }
}

wire_type! {
    /// Through the guest agent, for the users whom the Secret names.
    ForAllNamed = "io.kubevirt.v1.QemuGuestAgentUserPasswordAccessCredentialPropagation" {}
}
