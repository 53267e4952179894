package main

import (
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"time"

	harvesterv1 "github.com/harvester/harvester/pkg/apis/harvesterhci.io/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// uploadedImage: an image of sourceType upload, whose bytes go beside the API in one part of a form.
func (s *story) uploadedImage(name, file string) string {
	client := s.harvester.HarvesterhciV1beta1().VirtualMachineImages(s.namespace)
	_, err := client.Create(s.ctx, &harvesterv1.VirtualMachineImage{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace,
			Annotations: map[string]string{"harvesterhci.io/storageClassName": "harvester-longhorn"}},
		Spec: harvesterv1.VirtualMachineImageSpec{
			Backend: harvesterv1.VMIBackendBackingImage, DisplayName: name,
			SourceType: harvesterv1.VirtualMachineImageSourceTypeUpload,
		},
	}, metav1.CreateOptions{})
	s.works(err, "an image to be uploaded is created")
	// The provider looks every two seconds until it may begin.
	s.within(imageBudget, "it says when its bytes may come", func() (bool, any) {
		image, err := client.Get(s.ctx, name, metav1.GetOptions{})
		s.must(err, "read image %s", name)
		state := s.imageState(image)
		return state == "Uploading", state
	})
	code, answer := s.upload(name, file)
	s.so(code < http.StatusBadRequest, "its bytes are taken in one part, chunked, with no length", fmt.Sprint(code, answer))
	s.within(imageBudget, "and the image becomes active", func() (bool, any) {
		image, err := client.Get(s.ctx, name, metav1.GetOptions{})
		s.must(err, "read image %s", name)
		return s.imageState(image) == "Active", image.Status
	})
	image, err := client.Get(s.ctx, name, metav1.GetOptions{})
	s.must(err, "read image %s", name)
	size, err := os.Stat(file)
	s.must(err, "look at %s", file)
	s.same(size.Size(), image.Status.Size, "it is as large as what was sent")
	s.same(100, image.Status.Progress, "and wholly there")
	// Volumes of images have this name in them, whatever the image says.
	s.same("longhorn-"+name, image.Status.StorageClassName, "its storage class is the one that the provider writes out")
	list, err := client.List(s.ctx, metav1.ListOptions{})
	s.must(err, "list images")
	s.so(len(list.Items) == 1 && list.Items[0].Spec.DisplayName == name, "it is found by its display name", list.Items)
	return s.namespace + "/" + name
}

// What the provider makes of an image's conditions.
func (s *story) imageState(image *harvesterv1.VirtualMachineImage) string {
	of := map[string]harvesterv1.Condition{}
	for _, condition := range image.Status.Conditions {
		of[string(condition.Type)] = condition
	}
	initialized, imported := of["Initialized"], of["Imported"]
	switch {
	case initialized.Status != "True" && initialized.Message != "":
		panic(notSo("the provider gives the image up for good: Initialized is not True and says " + initialized.Message))
	case initialized.Status != "True":
		return "Initializing"
	case imported.Status == "True":
		return "Active"
	default:
		return "Uploading"
	}
}

// Streams the file as the provider does: the form is written while it is sent.
func (s *story) upload(name, file string) (int, string) {
	content, err := os.Open(file)
	s.must(err, "open %s", file)
	defer content.Close()
	size, err := content.Stat()
	s.must(err, "look at %s", file)
	read, write := io.Pipe()
	form := multipart.NewWriter(write)
	go func() {
		part, err := form.CreateFormFile("chunk", filepath.Base(file))
		if err == nil {
			_, err = io.Copy(part, content)
		}
		if err == nil {
			err = form.Close()
		}
		write.CloseWithError(err)
	}()
	url := fmt.Sprintf("%s/v1/harvester/harvesterhci.io.virtualmachineimages/%s/%s?action=upload&size=%d",
		s.config.Host, s.namespace, name, size.Size())
	request, err := http.NewRequestWithContext(s.ctx, http.MethodPost, url, read)
	s.must(err, "make a request")
	request.Header.Set("Content-Type", form.FormDataContentType())
	client, err := rest.HTTPClientFor(s.config)
	s.must(err, "make an HTTP client")
	response, err := client.Do(request)
	s.must(err, "upload %s", file)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	s.must(err, "read the answer to an upload")
	return response.StatusCode, string(answer)
}

// While an image goes, the provider takes it for Terminating or Active and for nothing else.
func (s *story) imageGoes(image string) {
	namespace, name := s.named(image)
	client := s.harvester.HarvesterhciV1beta1().VirtualMachineImages(namespace)
	s.works(client.Delete(s.ctx, name, metav1.DeleteOptions{}), "the image is deleted")
	s.within(2*time.Minute, "and is gone", func() (bool, any) {
		image, err := client.Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			return isGone(err), err
		}
		state := s.imageState(image)
		if image.DeletionTimestamp == nil && state != "Active" {
			panic(notSo("the provider gives up: an image that goes is " + state))
		}
		return false, image.Status
	})
}
