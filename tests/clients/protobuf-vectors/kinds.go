package main

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// What a client may send or will soon: one line here and a run of
// scripts/generate-protobuf-tables adds a kind.
var kinds = []struct {
	version schema.GroupVersion
	names   []string
}{
	{corev1.SchemeGroupVersion, []string{
		"ConfigMap", "ConfigMapList", "Event", "EventList", "LimitRange", "LimitRangeList",
		"Namespace", "NamespaceList", "Node", "NodeList", "PersistentVolume", "PersistentVolumeList",
		"PersistentVolumeClaim", "PersistentVolumeClaimList", "Pod", "PodList",
		"ResourceQuota", "ResourceQuotaList", "Secret", "SecretList", "Service", "ServiceList",
		"ServiceAccount", "ServiceAccountList",
	}},
	{apiextensionsv1.SchemeGroupVersion, []string{"CustomResourceDefinition", "CustomResourceDefinitionList"}},
	{authenticationv1.SchemeGroupVersion, []string{"SelfSubjectReview", "TokenRequest", "TokenReview"}},
	{authorizationv1.SchemeGroupVersion, []string{
		"LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview",
	}},
	{autoscalingv1.SchemeGroupVersion, []string{"Scale"}},
	{coordinationv1.SchemeGroupVersion, []string{"Lease", "LeaseList"}},
	{eventsv1.SchemeGroupVersion, []string{"Event", "EventList"}},
	{policyv1.SchemeGroupVersion, []string{"Eviction"}},
	{rbacv1.SchemeGroupVersion, []string{
		"ClusterRole", "ClusterRoleBinding", "ClusterRoleBindingList", "ClusterRoleList",
		"Role", "RoleBinding", "RoleBindingList", "RoleList",
	}},
	{storagev1.SchemeGroupVersion, []string{
		"StorageClass", "StorageClassList", "VolumeAttachment", "VolumeAttachmentList",
	}},
}

// These belong to every group: a client sends them with the version of the group it is
// talking to.
var everywhere = []string{"CreateOptions", "DeleteOptions", "PatchOptions", "Status", "UpdateOptions"}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apiextensionsv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		autoscalingv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme, eventsv1.AddToScheme,
		policyv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	return scheme
}
