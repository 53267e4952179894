package main

import (
	"encoding/base64"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// confidences: secrets and tokens in every form in which these libraries send or are
// sent them. Each is told on a line of its own, for who looks whether the server kept
// it to itself.
func confidences(s *story) {
	secretsAreWritten(s)
	secretsArePatched(s)
	secretsAreDynamic(s)
	tokensAreIssued(s)
}

// confide tells a secret to who started this program.
func confide(secret string) string {
	say("secret: " + secret)
	return secret
}

func draw() string {
	return confide("Qx" + utilrand.String(18))
}

func secretsAreWritten(s *story) {
	of := s.typed.CoreV1().Secrets(s.namespace)
	made, err := of.Create(s.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "typed", Annotations: map[string]string{"note": draw()}},
		Data:       map[string][]byte{"data": []byte(draw())},
		StringData: map[string]string{"text": draw()},
	}, metav1.CreateOptions{})
	s.works(err, "a Secret is created")
	made.Data["data"] = []byte(draw())
	_, err = of.Update(s.ctx, made, metav1.UpdateOptions{})
	s.works(err, "a Secret is updated")
	for range 2 {
		_, err = of.Apply(s.ctx, corev1ac.Secret("applied", s.namespace).
			WithData(map[string][]byte{"data": []byte(draw())}).
			WithStringData(map[string]string{"text": draw()}), forcedBy("story"))
		s.works(err, "a Secret is applied")
	}
	_, err = of.List(s.ctx, metav1.ListOptions{})
	s.works(err, "Secrets are listed")
	_, err = of.Create(s.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "Not_A_Name"},
		StringData: map[string]string{draw(): draw()},
	}, metav1.CreateOptions{})
	s.so(err != nil, "a Secret with a bad name is refused", err)
}

func secretsArePatched(s *story) {
	of := s.typed.CoreV1().Secrets(s.namespace)
	for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
		patch := fmt.Sprintf(`{"stringData":{"text":%q},"metadata":{"annotations":{"note":%q}}}`, draw(), draw())
		_, err := of.Patch(s.ctx, "typed", kind, []byte(patch), metav1.PatchOptions{})
		s.works(err, "a Secret takes a patch of type "+string(kind))
	}
	steps := fmt.Sprintf(`[{"op":"add","path":"/data/step","value":%q}]`, base64.StdEncoding.EncodeToString([]byte(draw())))
	_, err := of.Patch(s.ctx, "typed", types.JSONPatchType, []byte(steps), metav1.PatchOptions{})
	s.works(err, "a Secret takes a patch of steps")
}

func secretsAreDynamic(s *story) {
	of := s.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(s.namespace)
	secret := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name},
			"stringData": map[string]any{"text": draw()},
		}}
	}
	made, err := of.Create(s.ctx, secret("dynamic"), metav1.CreateOptions{})
	s.works(err, "a Secret is created in JSON")
	made.Object["data"] = map[string]any{"data": base64.StdEncoding.EncodeToString([]byte(draw()))}
	_, err = of.Update(s.ctx, made, metav1.UpdateOptions{})
	s.works(err, "and updated")
	_, err = of.Apply(s.ctx, "dynamic", secret("dynamic"), forcedBy("story"))
	s.works(err, "and applied")
}

func tokensAreIssued(s *story) {
	of := s.typed.CoreV1().ServiceAccounts(s.namespace)
	_, err := of.Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	s.must(err, "create a ServiceAccount")
	seconds := int64(3600)
	issued, err := of.CreateToken(s.ctx, "robot", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	s.works(err, "a token is issued")
	token := confide(issued.Status.Token)
	reviewed, err := s.typed.AuthenticationV1().TokenReviews().Create(s.ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	s.works(err, "it is reviewed")
	s.so(reviewed.Status.Authenticated, "and is good", reviewed.Status)
	guessed, err := s.typed.AuthenticationV1().TokenReviews().Create(s.ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: draw()},
	}, metav1.CreateOptions{})
	s.works(err, "one that was made up is reviewed")
	s.so(!guessed.Status.Authenticated, "and is not", guessed.Status)

	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = token
	robot, err := kubernetes.NewForConfig(config)
	s.must(err, "make a client with the token")
	_, err = robot.CoreV1().Secrets(s.namespace).List(s.ctx, metav1.ListOptions{})
	s.so(err != nil, "who has the token may not read Secrets", err)
}
