package main

import (
	"context"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// What every generated client of a kind can do.
type client[T any] interface {
	Create(context.Context, *T, metav1.CreateOptions) (*T, error)
	Get(context.Context, string, metav1.GetOptions) (*T, error)
	Update(context.Context, *T, metav1.UpdateOptions) (*T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*T, error)
}

// lives takes one object through its whole life, up to its deletion, and returns it as
// it was last seen. `names` lists the kind's objects with the label that it got.
func lives[T any](s *story, kind string, of client[T], object *T, meta func(*T) *metav1.ObjectMeta,
	names func(metav1.ListOptions) ([]string, error),
) *T {
	name := meta(object).Name
	created, err := of.Create(s.ctx, object, metav1.CreateOptions{FieldManager: "story"})
	s.works(err, kind+" is created")
	made := meta(created)
	s.so(made.UID != "" && made.ResourceVersion != "" && !made.CreationTimestamp.IsZero(),
		kind+" has a uid, a resourceVersion and a time of creation", made)
	s.so(len(made.ManagedFields) > 0 && made.ManagedFields[0].Manager == "story", kind+" has the manager who made it", made.ManagedFields)

	read, err := of.Get(s.ctx, name, metav1.GetOptions{})
	s.works(err, kind+" is read")
	s.same(made.UID, meta(read).UID, kind+" that is read is the one that was created")

	meta(read).Annotations = map[string]string{"story.test/note": "updated"}
	updated, err := of.Update(s.ctx, read, metav1.UpdateOptions{})
	// A controller may have written in between, as it may in any cluster.
	for apierrors.IsConflict(err) {
		read, err = of.Get(s.ctx, name, metav1.GetOptions{})
		s.must(err, "read %s again", kind)
		meta(read).Annotations = map[string]string{"story.test/note": "updated"}
		updated, err = of.Update(s.ctx, read, metav1.UpdateOptions{})
	}
	s.works(err, kind+" is updated")
	s.same("updated", meta(updated).Annotations["story.test/note"], kind+" has what it was updated with")
	s.so(meta(updated).ResourceVersion != made.ResourceVersion, kind+" has a new resourceVersion", meta(updated))

	patches := []struct {
		as   types.PatchType
		body string
	}{
		{types.MergePatchType, `{"metadata":{"labels":{"story.test/suffix":"` + s.suffix + `"}}}`},
		{types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`},
		{types.StrategicMergePatchType, `{"metadata":{"labels":{"strategic":"yes","json":null}}}`},
	}
	patched := updated
	for _, patch := range patches {
		patched, err = of.Patch(s.ctx, name, patch.as, []byte(patch.body), metav1.PatchOptions{})
		s.works(err, kind+" is patched with "+string(patch.as))
	}
	labels := meta(patched).Labels
	_, json := labels["json"]
	s.so(labels["story.test/suffix"] == s.suffix && labels["strategic"] == "yes" && !json, kind+" has what the patches made of it", labels)

	found, err := names(metav1.ListOptions{LabelSelector: "story.test/suffix=" + s.suffix})
	s.works(err, kind+" is listed by its label")
	s.same(name, strings.Join(found, " "), kind+" alone is in that list")
	found, err = names(metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	s.works(err, kind+" is listed by its name")
	s.same(name, strings.Join(found, " "), kind+" alone is in that list")
	return patched
}

// dies ends the life that `lives` began.
func dies[T any](s *story, kind string, of client[T], object *T, meta func(*T) *metav1.ObjectMeta) {
	name := meta(object).Name
	uid := meta(object).UID
	s.works(of.Delete(s.ctx, name, metav1.DeleteOptions{}), kind+" is deleted")
	left, err := of.Get(s.ctx, name, metav1.GetOptions{})
	// Kinds that others guard with a finalizer are only marked.
	s.so(apierrors.IsNotFound(err) || (err == nil && meta(left).UID == uid && meta(left).DeletionTimestamp != nil),
		kind+" is gone, or marked for it", left)
}

// listed turns a typed List into the names of its items.
func listed[L any, T any](s *story, list func(context.Context, metav1.ListOptions) (*L, error),
	items func(*L) []T, meta func(*T) *metav1.ObjectMeta,
) func(metav1.ListOptions) ([]string, error) {
	return func(options metav1.ListOptions) (names []string, err error) {
		all, err := list(s.ctx, options)
		if err != nil {
			return nil, err
		}
		for _, item := range items(all) {
			names = append(names, meta(&item).Name)
		}
		return names, nil
	}
}

func configMaps(s *story) {
	of := s.typed.CoreV1().ConfigMaps(s.namespace)
	meta := func(c *corev1.ConfigMap) *metav1.ObjectMeta { return &c.ObjectMeta }
	names := listed(s, of.List, func(l *corev1.ConfigMapList) []corev1.ConfigMap { return l.Items }, meta)
	object := configMap("life", "colour", "blau, größer als 3 ≥ 2")
	object.BinaryData = map[string][]byte{"bytes": {0, 1, 2, 0xff, 0xfe}}
	last := lives(s, "ConfigMap", of, object, meta, names)
	s.so(last.Data["colour"] == object.Data["colour"] && string(last.BinaryData["bytes"]) == string(object.BinaryData["bytes"]),
		"ConfigMap kept its text and its bytes", last)

	last.Immutable = ptr.To(true)
	last, err := of.Update(s.ctx, last, metav1.UpdateOptions{})
	s.works(err, "ConfigMap is made immutable")
	last.Data["colour"] = "red"
	_, err = of.Update(s.ctx, last, metav1.UpdateOptions{})
	s.invalid(err, "data", metav1.CauseTypeForbidden, "a change to an immutable ConfigMap")
	dies(s, "ConfigMap", of, last, meta)

	for range 2 {
		made, err := of.Create(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}}, metav1.CreateOptions{})
		s.works(err, "ConfigMap is created with generateName")
		s.so(len(made.Name) == len("made-")+5 && strings.HasPrefix(made.Name, "made-") && made.GenerateName == "made-",
			"and has five letters of its own", made.Name)
	}
}

func secrets(s *story) {
	of := s.typed.CoreV1().Secrets(s.namespace)
	meta := func(c *corev1.Secret) *metav1.ObjectMeta { return &c.ObjectMeta }
	names := listed(s, of.List, func(l *corev1.SecretList) []corev1.Secret { return l.Items }, meta)
	last := lives(s, "Secret", of, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "life"},
		Data:       map[string][]byte{"bytes": {0, 0xff}, "both": []byte("data")},
		StringData: map[string]string{"text": "plain", "both": "stringData"},
	}, meta, names)
	s.so(string(last.Data["text"]) == "plain" && string(last.Data["both"]) == "stringData" && string(last.Data["bytes"]) == "\x00\xff" && last.StringData == nil,
		"stringData of a Secret went into its data, over what was there", last)
	s.same(corev1.SecretTypeOpaque, last.Type, "Secret without a type is Opaque")
	last.Type = corev1.SecretTypeBasicAuth
	_, err := of.Update(s.ctx, last, metav1.UpdateOptions{})
	s.invalid(err, "type", metav1.CauseTypeFieldValueInvalid, "a change to the type of a Secret")
	dies(s, "Secret", of, last, meta)
}

func namespaces(s *story) {
	of := s.typed.CoreV1().Namespaces()
	meta := func(c *corev1.Namespace) *metav1.ObjectMeta { return &c.ObjectMeta }
	names := listed(s, of.List, func(l *corev1.NamespaceList) []corev1.Namespace { return l.Items }, meta)
	name := "client-go-life-" + s.suffix
	last := lives(s, "Namespace", of, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, meta, names)
	s.same(corev1.NamespaceActive, last.Status.Phase, "Namespace is Active")
	s.same(name, last.Labels["kubernetes.io/metadata.name"], "Namespace has its name as a label")
	s.same("[kubernetes]", last.Spec.Finalizers, "Namespace has its finalizer")
	dies(s, "Namespace", of, last, meta)
}

func serviceAccounts(s *story) {
	of := s.typed.CoreV1().ServiceAccounts(s.namespace)
	meta := func(c *corev1.ServiceAccount) *metav1.ObjectMeta { return &c.ObjectMeta }
	names := listed(s, of.List, func(l *corev1.ServiceAccountList) []corev1.ServiceAccount { return l.Items }, meta)
	last := lives(s, "ServiceAccount", of, &corev1.ServiceAccount{
		ObjectMeta:                   metav1.ObjectMeta{Name: "life"},
		AutomountServiceAccountToken: ptr.To(false),
		ImagePullSecrets:             []corev1.LocalObjectReference{{Name: "pull"}},
	}, meta, names)
	s.so(last.AutomountServiceAccountToken != nil && !*last.AutomountServiceAccountToken && last.ImagePullSecrets[0].Name == "pull",
		"ServiceAccount kept its false and its list", last)
	dies(s, "ServiceAccount", of, last, meta)
}

func roles(s *story) {
	of := s.typed.RbacV1().Roles(s.namespace)
	meta := func(c *rbacv1.Role) *metav1.ObjectMeta { return &c.ObjectMeta }
	names := listed(s, of.List, func(l *rbacv1.RoleList) []rbacv1.Role { return l.Items }, meta)
	role := lives(s, "Role", of, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "life"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}},
	}, meta, names)
	s.same("[configmaps]", role.Rules[0].Resources, "Role kept its rules")
	_, err := of.Create(s.ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "wordless"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}}},
	}, metav1.CreateOptions{})
	s.invalid(err, "rules[0].verbs", metav1.CauseTypeFieldValueRequired, "a Role without verbs")

	bindings := s.typed.RbacV1().RoleBindings(s.namespace)
	bindingMeta := func(c *rbacv1.RoleBinding) *metav1.ObjectMeta { return &c.ObjectMeta }
	bindingNames := listed(s, bindings.List, func(l *rbacv1.RoleBindingList) []rbacv1.RoleBinding { return l.Items }, bindingMeta)
	binding := lives(s, "RoleBinding", bindings, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "life"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "somebody-" + s.suffix}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "life"},
	}, bindingMeta, bindingNames)
	s.same(rbacv1.GroupName, binding.Subjects[0].APIGroup, "the user of a RoleBinding was given its group")
	binding.RoleRef.Name = "other"
	_, err = bindings.Update(s.ctx, binding, metav1.UpdateOptions{})
	s.invalid(err, "roleRef", metav1.CauseTypeFieldValueInvalid, "a change to the role of a RoleBinding")
}

// accessReviews come after roles: they ask about what those allow.
func accessReviews(s *story) {
	allowed := func(verb string) bool {
		review, err := s.typed.AuthorizationV1().SubjectAccessReviews().Create(s.ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "somebody-" + s.suffix,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: s.namespace, Verb: verb, Resource: "configmaps"},
			},
		}, metav1.CreateOptions{})
		s.must(err, "ask whether somebody may %s ConfigMaps", verb)
		return review.Status.Allowed
	}
	s.soon("what the Role allows is allowed to whom it was bound", func() (bool, any) { return allowed("get"), "denied" })
	s.so(!allowed("delete"), "and nothing else", "allowed")
	self, err := s.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(s.ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"},
		},
	}, metav1.CreateOptions{})
	s.works(err, "one may ask about oneself")
	s.so(self.Status.Allowed, "and the administrator may do everything", self.Status)

	roleMeta := func(c *rbacv1.Role) *metav1.ObjectMeta { return &c.ObjectMeta }
	bindingMeta := func(c *rbacv1.RoleBinding) *metav1.ObjectMeta { return &c.ObjectMeta }
	bindings, roles := s.typed.RbacV1().RoleBindings(s.namespace), s.typed.RbacV1().Roles(s.namespace)
	binding, err := bindings.Get(s.ctx, "life", metav1.GetOptions{})
	s.must(err, "read the RoleBinding")
	role, err := roles.Get(s.ctx, "life", metav1.GetOptions{})
	s.must(err, "read the Role")
	dies(s, "RoleBinding", bindings, binding, bindingMeta)
	dies(s, "Role", roles, role, roleMeta)
	s.soon("what was allowed ends with the RoleBinding", func() (bool, any) { return !allowed("get"), "allowed" })
}

func leases(s *story) {
	of := s.typed.CoordinationV1().Leases(s.namespace)
	meta := func(c *coordinationv1.Lease) *metav1.ObjectMeta { return &c.ObjectMeta }
	names := listed(s, of.List, func(l *coordinationv1.LeaseList) []coordinationv1.Lease { return l.Items }, meta)
	at := metav1.NewMicroTime(time.Date(2031, 2, 3, 4, 5, 6, 789012000, time.UTC))
	last := lives(s, "Lease", of, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "life"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("me"), LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: &at,
		},
	}, meta, names)
	s.so(last.Spec.RenewTime.Time.Equal(at.Time), "Lease kept its microseconds", last.Spec)
	last.ResourceVersion = ""
	_, err := of.Update(s.ctx, last, metav1.UpdateOptions{})
	s.invalid(err, "metadata.resourceVersion", metav1.CauseTypeFieldValueInvalid, "an update of a Lease without a resourceVersion")
	_, err = of.Create(s.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "short"},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To(int32(0))},
	}, metav1.CreateOptions{})
	s.invalid(err, "spec.leaseDurationSeconds", metav1.CauseTypeFieldValueInvalid, "a Lease of no time")
	dies(s, "Lease", of, last, meta)
}

func claims(s *story) {
	of := s.typed.CoreV1().PersistentVolumeClaims(s.namespace)
	meta := func(c *corev1.PersistentVolumeClaim) *metav1.ObjectMeta { return &c.ObjectMeta }
	names := listed(s, of.List, func(l *corev1.PersistentVolumeClaimList) []corev1.PersistentVolumeClaim { return l.Items }, meta)
	last := lives(s, "PersistentVolumeClaim", of, claim("life"), meta, names)
	size := last.Spec.Resources.Requests[corev1.ResourceStorage]
	s.same("1Gi", size.String(), "PersistentVolumeClaim kept its size")
	s.so(last.Spec.StorageClassName != nil && *last.Spec.StorageClassName == "", "PersistentVolumeClaim kept its wish for no class", last.Spec)
	s.so(last.Spec.VolumeMode != nil && *last.Spec.VolumeMode == corev1.PersistentVolumeFilesystem, "PersistentVolumeClaim was given its volumeMode", last.Spec)
	s.same(corev1.ClaimPending, last.Status.Phase, "PersistentVolumeClaim is Pending")
	modeless := claim("modeless")
	modeless.Spec.AccessModes = nil
	_, err := of.Create(s.ctx, modeless, metav1.CreateOptions{})
	s.invalid(err, "spec.accessModes", metav1.CauseTypeFieldValueRequired, "a PersistentVolumeClaim without accessModes")
	dies(s, "PersistentVolumeClaim", of, last, meta)
}

// A claim that nobody provisions: it waits for a volume that somebody made by hand.
func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: ptr.To(""),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
}

func storageClasses(s *story) {
	of := s.typed.StorageV1().StorageClasses()
	meta := func(c *storagev1.StorageClass) *metav1.ObjectMeta { return &c.ObjectMeta }
	names := listed(s, of.List, func(l *storagev1.StorageClassList) []storagev1.StorageClass { return l.Items }, meta)
	name := "client-go-" + s.suffix
	s.later(func(ctx context.Context) { _ = of.Delete(ctx, name, metav1.DeleteOptions{}) })
	last := lives(s, "StorageClass", of, &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: name},
		Provisioner: "story.test/nobody",
		Parameters:  map[string]string{"speed": "fast"},
	}, meta, names)
	s.so(last.ReclaimPolicy != nil && *last.ReclaimPolicy == corev1.PersistentVolumeReclaimDelete &&
		last.VolumeBindingMode != nil && *last.VolumeBindingMode == storagev1.VolumeBindingImmediate,
		"StorageClass was given its defaults", last)
	last.Parameters["speed"] = "slow"
	_, err := of.Update(s.ctx, last, metav1.UpdateOptions{})
	s.invalid(err, "parameters", metav1.CauseTypeForbidden, "a change to the parameters of a StorageClass")
	dies(s, "StorageClass", of, last, meta)
}

func nodes(s *story) {
	of := s.typed.CoreV1().Nodes()
	meta := func(c *corev1.Node) *metav1.ObjectMeta { return &c.ObjectMeta }
	names := listed(s, of.List, func(l *corev1.NodeList) []corev1.Node { return l.Items }, meta)
	name := "client-go-" + s.suffix
	s.later(func(ctx context.Context) { _ = of.Delete(ctx, name, metav1.DeleteOptions{}) })
	last := lives(s, "Node", of, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		// Nobody is to place anything on it.
		Spec: corev1.NodeSpec{Unschedulable: true},
	}, meta, names)
	last.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m")}
	last.ResourceVersion = ""
	last, err := of.UpdateStatus(s.ctx, last, metav1.UpdateOptions{})
	s.works(err, "the status of a Node is updated")
	s.same("3500m", last.Status.Capacity.Cpu(), "and has what it was updated with")
	dies(s, "Node", of, last, meta)
}
