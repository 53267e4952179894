package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// becomesGuestCluster goes on as the service account that a guest cluster is given: the two roles that Harvester makes
// for its cloud provider and its CSI driver, bound as Harvester binds them, and no other right.
func (s *story) becomesGuestCluster() {
	const name = "guest"
	meta := metav1.ObjectMeta{Name: name, Namespace: s.namespace}
	account, err := s.kubernetes.CoreV1().ServiceAccounts(s.namespace).
		Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	s.must(err, "create a service account")
	secrets := s.kubernetes.CoreV1().Secrets(s.namespace)
	_, err = secrets.Create(s.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-token", Namespace: s.namespace, Annotations: map[string]string{
			corev1.ServiceAccountNameKey: name, corev1.ServiceAccountUIDKey: string(account.UID)}},
		Type: corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	s.must(err, "create a Secret for its token")
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: s.namespace}}
	of := func(role string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	}
	binding := metav1.ObjectMeta{Name: s.namespace + "-" + name, Namespace: s.namespace}
	_, err = s.kubernetes.RbacV1().RoleBindings(s.namespace).Create(s.ctx,
		&rbacv1.RoleBinding{ObjectMeta: binding, Subjects: subjects, RoleRef: of("harvesterhci.io:cloudprovider")}, metav1.CreateOptions{})
	s.must(err, "bind the cloud provider's role")
	binding.Namespace = ""
	_, err = s.kubernetes.RbacV1().ClusterRoleBindings().Create(s.ctx,
		&rbacv1.ClusterRoleBinding{ObjectMeta: binding, Subjects: subjects, RoleRef: of("harvesterhci.io:csi-driver")}, metav1.CreateOptions{})
	s.must(err, "bind the CSI driver's role")

	var token, authority []byte
	// Harvester itself waits three seconds.
	s.within(3*time.Second, "the service account's token comes", func() (bool, any) {
		secret, err := secrets.Get(s.ctx, name+"-token", metav1.GetOptions{})
		s.must(err, "read the Secret of the token")
		token, authority = secret.Data["token"], secret.Data["ca.crt"]
		return len(token) > 0 && len(authority) > 0, len(secret.Data)
	})
	s.use(&rest.Config{Host: s.config.Host, QPS: -1, BearerToken: string(token),
		TLSClientConfig: rest.TLSClientConfig{CAData: authority, ServerName: s.config.ServerName}})
}
