{{- define "kiln.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{- define "kiln.labels" -}}
app.kubernetes.io/name: kiln
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "kiln.selector" -}}
app.kubernetes.io/name: kiln
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kiln.podSecurity" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.images.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "kiln.coordinators" -}}
{{- $service := printf "%s-coordinator.%s" .Release.Name .Release.Namespace }}
{{- if .Values.store.postgresql }}
{{- $pods := list }}
{{- range until (int .Values.store.replicas) }}
{{- $pods = append $pods (printf "tcp://%s-coordinator-%d.%s-coordinators.%s:7557" $.Release.Name . $.Release.Name $.Release.Namespace) }}
{{- end }}
{{- join "," $pods }}
{{- else }}
{{- printf "tcp://%s:7557" $service }}
{{- end }}
{{- end }}
