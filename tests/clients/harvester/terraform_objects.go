package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	harvesterv1 "github.com/harvester/harvester/pkg/apis/harvesterhci.io/v1beta1"
	"github.com/harvester/harvester/pkg/builder"
	cniv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keyPair: harvester_ssh_key, which is not waited for: all that is read must be in the answer, or come without being
// needed.
func (s *story) keyPair(name string) string {
	client := s.harvester.HarvesterhciV1beta1().KeyPairs(s.namespace)
	_, err := client.Create(s.ctx, &harvesterv1.KeyPair{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec:       harvesterv1.KeyPairSpec{PublicKey: publicKey()},
	}, metav1.CreateOptions{})
	s.works(err, "a key pair is created")
	s.within(machineBudget, "it is validated and has a fingerprint", func() (bool, any) {
		found, err := client.Get(s.ctx, name, metav1.GetOptions{})
		s.must(err, "read key pair %s", name)
		validated := len(found.Status.Conditions) > 0 && found.Status.Conditions[0].Type == "validated" &&
			found.Status.Conditions[0].Status == corev1.ConditionTrue
		return validated && strings.Count(found.Status.FingerPrint, ":") == 15, found.Status
	})
	return name
}

// A public key of nobody's, in the form that authorized_keys has.
func publicKey() string {
	public, _, _ := ed25519.GenerateKey(nil)
	var blob []byte
	for _, field := range [][]byte{[]byte("ssh-ed25519"), public} {
		blob = binary.BigEndian.AppendUint32(blob, uint32(len(field)))
		blob = append(blob, field...)
	}
	return "ssh-ed25519 " + base64.StdEncoding.EncodeToString(blob) + " nobody"
}

// setting: read, written, and "deleted", which is writing nothing.
func (s *story) setting(name, other string) {
	client := s.harvester.HarvesterhciV1beta1().Settings()
	for _, value := range []string{other, ""} {
		setting, err := client.Get(s.ctx, name, metav1.GetOptions{})
		s.works(err, "setting "+name+" is there")
		setting.Value = value
		_, err = client.Update(s.ctx, setting, metav1.UpdateOptions{})
		s.works(err, fmt.Sprintf("and is set to %q", value))
		setting, err = client.Get(s.ctx, name, metav1.GetOptions{})
		s.must(err, "read setting %s", name)
		s.same(value, setting.Value, "which it then is")
	}
	_, err := client.Get(s.ctx, "no-such-setting", metav1.GetOptions{})
	s.so(isGone(err), "a setting that there is not is NotFound", err)
}

// network: harvester_network. The VLAN is read from the very answer to the POST, and only from one that carries the
// label of a VLAN's type.
func (s *story) network(name string, vlan int, wanted string) string {
	s.within(clusterNetworkBudget, "the cluster network mgmt is ready", func() (bool, any) {
		found, err := s.harvester.NetworkV1beta1().ClusterNetworks().Get(s.ctx, "mgmt", metav1.GetOptions{})
		s.must(err, "read cluster network mgmt")
		for _, condition := range found.Status.Conditions {
			if condition.Type == "ready" || condition.Type == "Ready" {
				return condition.Status == corev1.ConditionTrue, found.Status
			}
		}
		return false, found.Status
	})
	created, err := s.harvester.K8sCniCncfIoV1().NetworkAttachmentDefinitions(s.namespace).Create(s.ctx,
		&cniv1.NetworkAttachmentDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace,
				Labels:      map[string]string{"network.harvesterhci.io/clusternetwork": "mgmt"},
				Annotations: map[string]string{"network.harvesterhci.io/route": `{"mode":"auto","serverIPAddr":"","cidr":"","gateway":""}`}},
			Spec: cniv1.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(builder.NetworkVLANConfigTemplate, name, "mgmt", vlan)},
		}, metav1.CreateOptions{})
	s.works(err, "a network is created")
	s.same(wanted, created.Labels[builder.LabelKeyNetworkType], "the answer says what type it is of")
	var config struct{ Vlan int }
	s.must(json.Unmarshal([]byte(created.Spec.Config), &config), "read the network's config")
	s.same(vlan, config.Vlan, "and the VLAN is the one that was asked for")
	return s.namespace + "/" + name
}

func (s *story) networkGoes(network string) {
	namespace, name := s.named(network)
	client := s.harvester.K8sCniCncfIoV1().NetworkAttachmentDefinitions(namespace)
	s.works(client.Delete(s.ctx, name, metav1.DeleteOptions{}), "the network is deleted")
	s.within(deleteBudget, "and is gone", func() (bool, any) {
		_, err := client.Get(s.ctx, name, metav1.GetOptions{})
		return isGone(err), err
	})
}

// storageClass: harvester_storageclass, which takes three pointers apart.
func (s *story) storageClass(name string) {
	client := s.kubernetes.StorageV1().StorageClasses()
	default_, err := client.Get(s.ctx, "harvester-longhorn", metav1.GetOptions{})
	s.must(err, "read the storage class harvester-longhorn")
	created, err := client.Create(s.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: default_.Provisioner,
	}, metav1.CreateOptions{})
	s.works(err, "a storage class that says next to nothing is created")
	s.classIsWhole(created)
	listed, err := client.List(s.ctx, metav1.ListOptions{})
	s.must(err, "list storage classes")
	defaults := 0
	for _, class := range listed.Items {
		s.classIsWhole(&class)
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			defaults++
		}
	}
	s.same(1, defaults, "one storage class is the default")
	s.works(client.Delete(s.ctx, name, metav1.DeleteOptions{}), "it is deleted, with options in protobuf")
}

func (s *story) classIsWhole(class *storagev1.StorageClass) {
	s.panics(class.AllowVolumeExpansion != nil, "StorageClass "+class.Name+" has no allowVolumeExpansion")
	s.panics(class.ReclaimPolicy != nil, "StorageClass "+class.Name+" has no reclaimPolicy")
	s.panics(class.VolumeBindingMode != nil, "StorageClass "+class.Name+" has no volumeBindingMode")
}

// cloudInitSecret: harvester_cloudinit_secret, which says it in strings and reads it from the answer in bytes. An
// update says all of it again and so drops what it does not.
func (s *story) cloudInitSecret(name, key string) string {
	pair, err := s.harvester.HarvesterhciV1beta1().KeyPairs(s.namespace).Get(s.ctx, key, metav1.GetOptions{})
	s.must(err, "read key pair %s", key)
	userData := "#cloud-config\nssh_authorized_keys: [\"" + pair.Spec.PublicKey + "\"]\n"
	client := s.kubernetes.CoreV1().Secrets(s.namespace)
	created, err := client.Create(s.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		StringData: map[string]string{"userdata": userData, "networkdata": "version: 2\n"},
	}, metav1.CreateOptions{})
	s.works(err, "a Secret is created of strings")
	s.same(userData, string(created.Data["userdata"]), "the answer has them as data")
	s.so(len(created.StringData) == 0, "and not as strings", created.StringData)
	created.Data, created.StringData = map[string][]byte{}, map[string]string{"userdata": userData}
	updated, err := client.Update(s.ctx, created, metav1.UpdateOptions{})
	s.works(err, "it is updated with less")
	_, left := updated.Data["networkdata"]
	s.so(!left && string(updated.Data["userdata"]) == userData, "and has no more than it was given", len(updated.Data))
	return name
}

func emptyClaim(name, size string) *corev1.PersistentVolumeClaim {
	mode, class := corev1.PersistentVolumeBlock, "harvester-longhorn"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeMode: &mode, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}
}

// volume: harvester_volume, empty or of an image. Nobody waits for it to be bound.
func (s *story) volume(name, image string) {
	claim := emptyClaim(name, "64Mi")
	claim.Namespace = s.namespace
	if image != "" {
		_, of := s.named(image)
		class := "longhorn-" + of
		claim.Annotations = map[string]string{builder.AnnotationKeyImageID: image}
		claim.Spec.StorageClassName = &class
	}
	client := s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace)
	_, err := client.Create(s.ctx, claim, metav1.CreateOptions{})
	s.works(err, "volume "+name+" is created")
	_, err = s.harvester.KubevirtV1().VirtualMachines(s.namespace).List(s.ctx, metav1.ListOptions{})
	s.works(err, "and looked for in machines")
	s.within(machineBudget, "it is bound in the end", func() (bool, any) {
		found, err := client.Get(s.ctx, name, metav1.GetOptions{})
		s.must(err, "read claim %s", name)
		return found.Status.Phase == corev1.ClaimBound, found.Status
	})
}

func (s *story) volumeGoes(name string) {
	client := s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace)
	s.works(client.Delete(s.ctx, name, metav1.DeleteOptions{}), "volume "+name+" is deleted")
	s.within(deleteBudget, "and is gone", func() (bool, any) {
		_, err := client.Get(s.ctx, name, metav1.GetOptions{})
		return isGone(err), err
	})
}
